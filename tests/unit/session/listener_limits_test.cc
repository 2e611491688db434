// What clients share at the socket: places in the handshake and in the table, and the daemon's log.
#include <unistd.h>

#include <atomic>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::DataClient;
using ::testing::HasSubstr;
using testing::InChild;
using testing::MakeHello;
using testing::SessionWorld;
using testing::SharedClock;

uint16_t CodeOf(Code code) { return static_cast<uint16_t>(code); }

TEST(Listener, RefusedHandshakesTakeNoPlaceFromLaterClients) {
  SessionWorld world;
  for (size_t i = 0; i < kHandshakesMax + 44; ++i) {
    DataClient client(world.socket_path());
    ASSERT_TRUE(client.SendBytes(std::as_bytes(std::span("no hello at all"))));
    ASSERT_EQ(client.ReceiveRefusal().code, CodeOf(Code::kInvalid)) << "client " << i;
  }
  EXPECT_TRUE(world.ListenerIsIdle());
  DataClient good(world.socket_path());
  const proto::Welcome welcome = good.Attach(MakeHello("train"));
  EXPECT_EQ(welcome.code, 0) << welcome.message;
}

TEST(Listener, HandshakesThatNeverCameLeaveItIdle) {
  SessionWorld world({.handshake_timeout = std::chrono::milliseconds(1)});
  for (int i = 0; i < 3; ++i) {
    DataClient client(world.socket_path());
    EXPECT_EQ(client.ReceiveRefusal().code, CodeOf(Code::kTimeout));
  }
  EXPECT_TRUE(world.ListenerIsIdle());
}

TEST(Listener, HandshakeThatNeverComesEndsByItself) {
  SessionWorld world({.handshake_timeout = std::chrono::milliseconds(1)});
  DataClient client(world.socket_path());
  const auto refusal = client.ReceiveRefusal();
  EXPECT_EQ(refusal.code, CodeOf(Code::kTimeout));
}

TEST(Listener, RefusalsInALoopDoNotFillTheLog) {
  std::atomic<uint32_t> warnings{0};
  SessionWorld world({.on_warning = [&](const std::string&) { ++warnings; }});
  DataClient first(world.socket_path());
  ASSERT_EQ(first.Attach(MakeHello("train")).code, 0);
  for (uint32_t i = 0; i < 3 * kWarningsPerPeriodMax; ++i) {
    DataClient refused(world.socket_path());
    ASSERT_EQ(refused.Attach(MakeHello("train")).code, CodeOf(Code::kAlreadyExists)) << "each is told all the same";
  }
  EXPECT_LT(warnings, 3 * kWarningsPerPeriodMax);
  EXPECT_GT(warnings, 0u);
}

TEST(Listener, SessionsAreLimited) {
  SessionWorld world({.table = {.sessions_max = 2}});
  DataClient first(world.socket_path());
  DataClient second(world.socket_path());
  DataClient third(world.socket_path());
  EXPECT_EQ(first.Attach(MakeHello("a")).code, 0);
  EXPECT_EQ(second.Attach(MakeHello("b")).code, 0);
  const auto refusal = third.Attach(MakeHello("c"));
  EXPECT_EQ(refusal.code, CodeOf(Code::kDenied));
  EXPECT_THAT(refusal.message, HasSubstr("max_sessions"));
}

TEST(Listener, WhoSaysNothingMakesRoomForNewerClientsOfItsUser) {
  SessionWorld world;
  std::vector<std::unique_ptr<DataClient>> silent;
  for (size_t i = 0; i <= PerUidLimit(kHandshakesMax); ++i) {
    silent.push_back(std::make_unique<DataClient>(world.socket_path()));
  }
  const auto refusal = silent.front()->ReceiveRefusal();
  EXPECT_EQ(refusal.code, CodeOf(Code::kTimeout));
  EXPECT_THAT(refusal.message, HasSubstr("223 others"));
  EXPECT_EQ(silent.back()->Attach(MakeHello("train")).code, 0) << "the newest has the place";
}

TEST(Listener, OneUserCannotTakeEveryHandshakeNorSession) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: two uids";
  SessionWorld world({.table = {.sessions_max = 8}});
  std::vector<std::unique_ptr<DataClient>> mine;
  for (size_t i = 0; i < 7; ++i) {
    mine.push_back(std::make_unique<DataClient>(world.socket_path()));
    ASSERT_EQ(mine.back()->Attach(MakeHello("job" + std::to_string(i))).code, 0) << i;
  }
  for (size_t i = 0; i < kHandshakesMax; ++i) mine.push_back(std::make_unique<DataClient>(world.socket_path()));
  const int status = InChild([&] {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
    DataClient theirs(world.socket_path());
    return theirs.Attach(MakeHello("theirs")).code == 0 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  const auto refusal = mine.back()->Attach(MakeHello("job7"));
  EXPECT_EQ(refusal.code, CodeOf(Code::kDenied));
  EXPECT_THAT(refusal.message, HasSubstr("7 of one user"));
}

TEST(Listener, SixtyFiveClientsAtOnceAllGetIn) {
  SessionWorld world({.jobs = {.jobs_per_uid_max = 100}});
  std::vector<std::unique_ptr<DataClient>> clients;
  for (int i = 0; i < 65; ++i) clients.push_back(std::make_unique<DataClient>(world.socket_path()));
  for (size_t i = 0; i < clients.size(); ++i) {
    ASSERT_TRUE(clients[i]->Send(MakeHello("job" + std::to_string(i))));
  }
  std::set<uint64_t> sessions;
  for (auto& client : clients) {
    const auto welcome = client->Receive().As<proto::Welcome>();
    ASSERT_EQ(welcome.code, 0) << welcome.message;
    sessions.insert(welcome.session);
  }
  EXPECT_EQ(sessions.size(), 65u);
  EXPECT_EQ(world.sessions(), 65u);
  clients.clear();
  EXPECT_TRUE(world.WaitForSessions(0));
}

// So many attaches that the next one of this user waits for its turn.
void SpendBurst(SessionWorld& world) {
  for (uint32_t i = 0; i < kAttachBurst; ++i) {
    DataClient client(world.socket_path());
    ASSERT_EQ(client.Attach(MakeHello("burst")).code, 0) << i;
    client.SendGoodbye();
    ASSERT_TRUE(client.Receive().closed);
    ASSERT_TRUE(world.WaitForSessions(0));
  }
}

TEST(Listener, AttachesBeyondTheRateOfAUserWaitForTheirTurn) {
  SharedClock clock;
  SessionWorld world({.jobs = {.jobs_per_uid_max = 1000}, .attaches_per_uid_per_second = 50, .clock = &clock});
  ASSERT_NO_FATAL_FAILURE(SpendBurst(world));
  DataClient late(world.socket_path());
  DataClient gone(world.socket_path());
  ASSERT_TRUE(late.Send(MakeHello("late")));
  ASSERT_TRUE(gone.Send(MakeHello("gone")));
  gone.Close();
  (void)world.ListenerIsIdle();
  EXPECT_EQ(world.sessions(), 0u) << "time stands still";
  if (::geteuid() == 0) {
    const int status = InChild([&] {
      if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
      DataClient theirs(world.socket_path());
      return theirs.Attach(MakeHello("theirs")).code == 0 ? 0 : 1;
    });
    EXPECT_EQ(status, 0) << "another user does not wait";
  }
  clock.Advance(std::chrono::milliseconds(20));
  EXPECT_EQ(late.Receive().As<proto::Welcome>().code, 0) << "its turn: 50 a second";
}

TEST(Listener, ClientThatWaitsForItsTurnIsToldOfAStop) {
  SharedClock clock;
  SessionWorld world({.attaches_per_uid_per_second = 1, .clock = &clock});
  ASSERT_NO_FATAL_FAILURE(SpendBurst(world));
  DataClient late(world.socket_path());
  ASSERT_TRUE(late.Send(MakeHello("late")));
  (void)world.ListenerIsIdle();
  world.StopAccepting("tierd is being stopped");
  EXPECT_EQ(late.ReceiveRefusal().code, CodeOf(Code::kDisconnected));
}

}  // namespace
}  // namespace tier::session
