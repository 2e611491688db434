// From connect to the end of a session, over a real socket, with honest clients, hostile ones and dying ones.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using proto::Op;
using proto::PacketKind;
using proto::RequestItem;
using ::testing::AnyOf;
using testing::Collector;
using ::testing::Contains;
using testing::DataClient;
using ::testing::HasSubstr;
using testing::InChild;
using testing::IncomingPacket;
using testing::kAdmin;
using testing::MakeHello;
using testing::SessionWorld;

uint16_t CodeOf(Code code) { return static_cast<uint16_t>(code); }

TEST(Listener, WelcomesAClientWithItsSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const proto::Welcome welcome = client.Attach(MakeHello("train"));
  ASSERT_EQ(welcome.code, 0) << welcome.message;
  EXPECT_EQ(welcome.epoch, 77u);
  EXPECT_GT(welcome.session, 0u);
  EXPECT_STREQ(welcome.job_name, "train");
  EXPECT_EQ(std::strlen(welcome.token), 64u);
  EXPECT_EQ(welcome.window_size, kWindowSizeMin);
  EXPECT_EQ(welcome.address_space_size, 128 * kWindowSizeMin);
  EXPECT_EQ(welcome.windows_max, 64u);
  EXPECT_EQ(welcome.session_region_size, proto::kSessionRegionSize);
  EXPECT_STREQ(welcome.daemon, "tierd test");
  EXPECT_EQ(world.sessions(), 1u);
}

TEST(Listener, RequestsAreAnsweredThroughTheRings) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  for (uint64_t i = 1; i <= 500; ++i) {
    const RequestItem item{.tensor = i};
    ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
    client.Ring();
    const auto answers = client.WaitForCompletions(1);
    ASSERT_EQ(answers[0].header.sequence, i);
  }
}

TEST(Listener, MemoryOfASessionCannotBeResizedAndThePageNotWritten) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  EXPECT_NE(::ftruncate(client.region_descriptor(), 0), 0);
  EXPECT_EQ(::mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, client.page_descriptor(), 0), MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(::pwrite(client.page_descriptor(), &byte, 1, 64), 0);
  EXPECT_NE(::fallocate(client.page_descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageSize), 0);
}

TEST(Listener, GoodbyeEndsTheSessionAndItsJob) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  client.SendGoodbye();
  EXPECT_TRUE(client.Receive().closed);
  ASSERT_TRUE(world.WaitForSessions(0));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("end 1: the client said goodbye")));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("close 1")));
}

TEST(Listener, AGoodbyeIsAnsweredByTheHangUpOnceTheEngineHasEndedTheSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const bool hung_up = world.OnEngine([&] {
    client.SendGoodbye();
    while (world.posted() == 0) std::this_thread::yield();  // The listener has read it.
    EXPECT_FALSE(world.ListenerIsIdle()) << "it holds the connection of a session that has not ended";
    pollfd hang_up{client.socket(), POLLRDHUP, 0};
    return ::poll(&hang_up, 1, 0) > 0;
  });
  EXPECT_FALSE(hung_up) << "the engine thread has not heard of the end yet";
  EXPECT_TRUE(client.Receive().closed);
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("end 1: the client said goodbye")));
}

TEST(Listener, WhatComesBehindAGoodbyeIsDropped) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  world.OnEngine([&] {
    client.SendGoodbye();
    client.SendGoodbye();
    const std::byte garbage[3] = {};
    EXPECT_TRUE(client.SendBytes(garbage));
    while (world.posted() == 0) std::this_thread::yield();
    world.OnSocketThread([] {});
    world.table().End(static_cast<tiering::SessionId>(1), Code::kRevoked, "in the same moment");
  });
  EXPECT_TRUE(client.Receive().closed) << "no packet tells a client that has left of an end";
  ASSERT_TRUE(world.WaitForSessions(0));
  EXPECT_TRUE(world.ListenerIsIdle());
}

TEST(Listener, HangUpEndsTheSession) {
  SessionWorld world;
  {
    DataClient client(world.socket_path());
    ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  }
  EXPECT_TRUE(world.WaitForSessions(0));
}

TEST(Listener, GarbageIsRefusedAndHurtsNobodyElse) {
  SessionWorld world;
  DataClient neighbour(world.socket_path());
  ASSERT_EQ(neighbour.Attach(MakeHello("neighbour")).code, 0);
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    DataClient client(world.socket_path());
    std::vector<std::byte> bytes(1 + random() % 4000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(client.SendBytes(bytes));
    EXPECT_EQ(client.ReceiveRefusal().code, CodeOf(Code::kInvalid));
  }
  const RequestItem item{.tensor = 1};
  ASSERT_TRUE(neighbour.ring().Send(Op::kFree, {&item, 1}));
  neighbour.Ring();
  EXPECT_EQ(neighbour.WaitForCompletions(1).size(), 1u);
}

TEST(Listener, OtherVersionsAreToldSo) {
  SessionWorld world;
  DataClient client(world.socket_path());
  proto::Hello hello = MakeHello("train");
  hello.header.version = 9;
  hello.version_min = 9;
  ASSERT_TRUE(client.Send(hello));
  const auto refusal = client.ReceiveRefusal();
  EXPECT_EQ(refusal.code, CodeOf(Code::kVersion));
  EXPECT_EQ(refusal.header.version, proto::kProtocolVersion);
}

TEST(Listener, TakesNoSessionOnceTheDaemonDrains) {
  SessionWorld world;
  DataClient first(world.socket_path());
  const proto::Welcome welcome = first.Attach(MakeHello("train"));
  ASSERT_EQ(welcome.code, 0);
  world.OnEngine([&] { world.jobs().StartDrain("tierd is being stopped"); });
  EXPECT_TRUE(world.OnEngine([&] { return world.engine.draining; }));
  for (const proto::Hello& hello : {MakeHello("late"), MakeHello("train", welcome.token)}) {
    DataClient late(world.socket_path());
    ASSERT_TRUE(late.Send(hello));
    const auto refusal = late.ReceiveRefusal();
    EXPECT_EQ(refusal.code, CodeOf(Code::kDisconnected));
    EXPECT_THAT(refusal.message, HasSubstr("tierd is being stopped"));
  }
  EXPECT_EQ(world.sessions(), 1u);
  EXPECT_EQ(world.OnEngine([&] { return world.jobs().registry().jobs().size(); }), 1u);
}

TEST(Listener, WhoHasSaidNothingYetIsToldOfAStop) {
  SessionWorld world;
  DataClient silent(world.socket_path());
  DataClient attached(world.socket_path());
  ASSERT_EQ(attached.Attach(MakeHello("train")).code, 0) << "and the one before it was accepted";
  world.StopAccepting("tierd is being stopped");
  const auto refusal = silent.ReceiveRefusal();
  EXPECT_EQ(refusal.code, CodeOf(Code::kDisconnected));
  EXPECT_STREQ(refusal.message, "tierd is being stopped");
  EXPECT_EQ(world.sessions(), 1u) << "the engine tells those that are attached";
  attached.SendGoodbye();
  EXPECT_TRUE(attached.Receive().closed);
  EXPECT_TRUE(world.ListenerIsIdle());
}

TEST(Listener, RefusalsOfTheRegistryAndTheEngineReachTheClient) {
  SessionWorld world;
  DataClient first(world.socket_path());
  ASSERT_EQ(first.Attach(MakeHello("train")).code, 0);
  DataClient second(world.socket_path());
  const auto refusal = second.Attach(MakeHello("train"));
  EXPECT_EQ(refusal.code, CodeOf(Code::kAlreadyExists));
  world.OnEngine([&] { world.engine.open_job_answer = Fail(Code::kNoMemory, "the guarantee cannot be given"); });
  DataClient third(world.socket_path());
  const auto no_memory = third.Attach(MakeHello("other"));
  EXPECT_EQ(no_memory.code, CodeOf(Code::kNoMemory));
  EXPECT_STREQ(no_memory.message, "the guarantee cannot be given");
  EXPECT_EQ(world.sessions(), 1u);
}

TEST(Listener, SessionThatTheEngineRefusesLeavesNoJobBehind) {
  SessionWorld world;
  world.OnEngine([&] { world.engine.open_session_answer = Fail(Code::kNoMemory, "no session"); });
  DataClient client(world.socket_path());
  EXPECT_EQ(client.Attach(MakeHello("train")).code, CodeOf(Code::kNoMemory));
  EXPECT_TRUE(world.OnEngine([&] { return world.engine.jobs.empty() && world.jobs().registry().jobs().empty(); }));
  DataClient again(world.socket_path());
  EXPECT_EQ(again.Attach(MakeHello("train")).code, 0);
}

TEST(Listener, BrokenRingEndsTheSessionWithAReasonThatNamesTheField) {
  SessionWorld world;
  DataClient client(world.socket_path());
  DataClient neighbour(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  ASSERT_EQ(neighbour.Attach(MakeHello("neighbour")).code, 0);
  const RequestItem item{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}, 1u << 31));
  client.Ring();
  const IncomingPacket packet = client.Receive();
  ASSERT_EQ(packet.kind(), PacketKind::kSessionEnd);
  const auto end = packet.As<proto::SessionEnd>();
  EXPECT_EQ(end.code, CodeOf(Code::kRevoked));
  EXPECT_THAT(end.message, HasSubstr("`flags`"));
  EXPECT_TRUE(client.Receive().closed);
  EXPECT_EQ(world.sessions(), 1u);
}

TEST(Listener, ImpossibleCursorEndsTheSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  client.ring().request_control().tail.store(UINT64_MAX);
  client.Ring();
  EXPECT_THAT(client.Receive().As<proto::SessionEnd>().message, HasSubstr("tail"));
}

TEST(Listener, HolesPunchedIntoTheSessionRegionEndAtMostThatSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const RequestItem item{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
  (void)::fallocate(client.region_descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(proto::kSessionRegionSize));
  client.Ring();
  DataClient neighbour(world.socket_path());
  EXPECT_EQ(neighbour.Attach(MakeHello("neighbour")).code, 0);
}

TEST(Listener, StrangePacketOfAnAttachedClientEndsItsSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  ASSERT_TRUE(client.Send(MakeHello("train")));
  const auto end = client.Receive().As<proto::SessionEnd>();
  EXPECT_EQ(end.code, CodeOf(Code::kRevoked));
  EXPECT_TRUE(world.WaitForSessions(0));
}

TEST(Listener, EngineMayEndASession) {
  SessionWorld world;
  Collector events({"session_revoked", "session_ended"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  world.OnEngine([&] {
    world.engine.EndInTurn(static_cast<tiering::SessionId>(welcome.session), Code::kRevoked, "window 3 was punched");
  });
  const auto end = client.Receive().As<proto::SessionEnd>();
  EXPECT_EQ(end.code, CodeOf(Code::kRevoked));
  EXPECT_STREQ(end.message, "window 3 was punched");
  EXPECT_TRUE(client.Receive().closed);
  EXPECT_EQ(world.sessions(), 0u);
  EXPECT_EQ(events.Wait(0).kind, "session_revoked") << "no client asked for it";
  EXPECT_THAT(events.Wait(0).message, HasSubstr("window 3 was punched"));
  {
    DataClient leaver(world.socket_path());
    ASSERT_EQ(leaver.Attach(MakeHello("train")).code, 0);
  }
  EXPECT_EQ(events.Wait(1).kind, "session_ended");
}

TEST(Listener, ClientsOfOtherUsersCannotJoinEachOthersJobs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: two uids";
  SessionWorld world;
  DataClient mine(world.socket_path());
  const auto welcome = mine.Attach(MakeHello("train"));
  ASSERT_EQ(welcome.code, 0);
  const std::string token = welcome.token;
  const int status = InChild([&] {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
    DataClient theirs(world.socket_path());
    proto::Hello hello = MakeHello("train", token);
    hello.mode = static_cast<uint16_t>(proto::OpenMode::kJoin);
    if (theirs.Attach(hello).code != CodeOf(Code::kNotFound)) return 1;
    DataClient own(world.socket_path());
    return own.Attach(MakeHello("train")).code == 0 ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(Listener, OverflowUidNeedsATokenAtTheSocketToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: two uids";
  SessionWorld world;
  const int status = InChild([&] {
    if (::setgid(kOverflowUid) != 0 || ::setuid(kOverflowUid) != 0) return 90;
    DataClient without(world.socket_path());
    if (without.Attach(MakeHello("train")).code != CodeOf(Code::kDenied)) return 1;
    DataClient with(world.socket_path());
    return with.Attach(MakeHello("train", std::string(64, 'a'))).code == 0 ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(Listener, FortyClientsKilledInTheMiddleLeaveNothing) {
  SessionWorld world;
  for (int round = 0; round < 40; ++round) {
    const pid_t client_process = ::fork();
    if (client_process == 0) {
      DataClient client(world.socket_path());
      if (client.Attach(MakeHello("train" + std::to_string(round % 8))).code != 0) ::_exit(1);
      const RequestItem item{.tensor = 1};
      for (;;) {
        (void)client.ring().Send(Op::kFree, {&item, 1});
        client.Ring();
        (void)client.ring().Receive();
      }
    }
    ASSERT_TRUE(world.WaitForSessions(1));
    ::kill(client_process, SIGKILL);
    ::waitpid(client_process, nullptr, 0);
    ASSERT_TRUE(world.WaitForSessions(0));
  }
  EXPECT_TRUE(world.OnEngine([&] {
    return world.engine.jobs.empty() && world.engine.sessions.empty() && world.jobs().registry().jobs().empty();
  }));
}

}  // namespace
}  // namespace tier::session
