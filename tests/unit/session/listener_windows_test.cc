// Windows over the data socket: handed over, asked back, and by clients that read nothing or say what nobody asked.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/hostile_descriptor.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using proto::PacketKind;
using ::testing::Contains;
using testing::DataClient;
using ::testing::HasSubstr;
using testing::InChild;
using testing::IncomingPacket;
using testing::MakeHello;
using testing::OpenDescriptors;
using testing::SessionWorld;
using testing::SharedClock;

uint16_t CodeOf(Code code) { return static_cast<uint16_t>(code); }

TEST(Listener, WindowsArriveWithTheirDescriptorAndAreGivenBack) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  world.OnEngine([&] { world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session), WindowIndex{5}); });
  const IncomingPacket packet = client.Receive();
  ASSERT_EQ(packet.kind(), PacketKind::kWindow);
  const auto window = packet.As<proto::WindowPacket>();
  const memory::WindowShape shape = testing::ShapeOf(WindowIndex{5});
  EXPECT_EQ(window.window, 5u);
  EXPECT_EQ(window.kind, static_cast<uint16_t>(shape.kind));
  EXPECT_EQ(window.page_size, shape.page_size);
  EXPECT_EQ(window.size, shape.size);
  EXPECT_EQ(window.place, shape.place);
  ASSERT_EQ(packet.descriptors.size(), 1u);
  world.OnEngine(
      [&] { world.table().OnWindowReturn(static_cast<tiering::SessionId>(welcome.session), WindowIndex{5}); });
  EXPECT_EQ(client.Receive().kind(), PacketKind::kWindowReturn);
  ASSERT_TRUE(client.Send(MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{5})));
  client.SendGoodbye();
  ASSERT_TRUE(world.WaitForSessions(0));
  EXPECT_THAT(world.OnEngine([&] { return world.engine.windows_returned; }), Contains(std::pair(welcome.session, 5u)));
}

TEST(Listener, HandsOverAWindowWhereNoFurtherFileMayBeOpened) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "needs a build without sanitizers: their check of an object's type opens a pipe";
#endif
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(::dup(client.socket()), -1);
  world.OnEngine([&] { world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session), WindowIndex{5}); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(client.Receive().kind(), PacketKind::kWindow);
}

// Until the daemon has read all that the client sent.
void WaitUntilRead(DataClient& client) {
  int unread = 1;
  while (::ioctl(client.socket(), SIOCOUTQ, &unread) == 0 && unread > 0) std::this_thread::yield();
}

TEST(Listener, WindowReturnsThatNobodyAskedForAreIgnored) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  const auto session = static_cast<tiering::SessionId>(welcome.session);
  const auto give_back = [&](uint32_t window) {
    ASSERT_TRUE(client.Send(MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{window})));
  };
  world.OnEngine([&] { world.engine.ShowWindow(session, WindowIndex{5}); });
  ASSERT_EQ(client.Receive().kind(), PacketKind::kWindow);
  for (uint32_t window = 0; window < 60; ++window) give_back(window);
  WaitUntilRead(client);
  world.OnEngine([&] { world.table().OnWindowReturn(session, WindowIndex{5}); });
  ASSERT_EQ(client.Receive().kind(), PacketKind::kWindowReturn);
  give_back(5);
  give_back(5);
  client.SendGoodbye();
  ASSERT_TRUE(world.WaitForSessions(0));
  EXPECT_EQ(world.OnEngine([&] { return world.engine.windows_returned; }).size(), 1u);
}

TEST(Listener, PacketsBehindAViolationDoNotReachTheEngine) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const size_t posted = world.OnEngine([&] {  // The engine is busy meanwhile.
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(client.Send(MakeHello("train")));
    WaitUntilRead(client);
    (void)world.ListenerIsIdle();
    return world.posted();
  });
  EXPECT_EQ(posted, 1u);
  EXPECT_EQ(client.Receive().As<proto::SessionEnd>().code, CodeOf(Code::kRevoked));
}

TEST(Listener, WindowsThatAClientDoesNotReadCostOneDescriptorEach) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  const size_t before = OpenDescriptors();
  for (uint32_t i = 0; i < kPacketsQueuedMax / 64; ++i) {
    world.OnEngine([&] {
      for (uint32_t w = 0; w < 64; ++w) {
        world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session), WindowIndex{w % 16});
      }
    });
  }
  (void)world.ListenerIsIdle();  // Behind everything that was to be sent.
  EXPECT_EQ(world.sessions(), 1u);
  EXPECT_LE(OpenDescriptors(), before + 16);
  const IncomingPacket packet = client.Receive();
  EXPECT_EQ(packet.kind(), PacketKind::kWindow);
  EXPECT_EQ(packet.descriptors.size(), 1u);
}

TEST(Listener, ClientThatReadsNoneOfItsWindowsHasToGo) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  for (size_t i = 0; i < 2 * kPacketsQueuedMax && world.sessions() > 0; i += 64) {
    world.OnEngine([&] {
      for (uint32_t w = 0; w < 64; ++w) {
        world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session), WindowIndex{w % 60});
      }
    });
  }
  EXPECT_TRUE(world.WaitForSessions(0));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("does not read its socket")));
}

// Hands the session `count` windows, and waits until they are sent or held back.
void ShowWindows(SessionWorld& world, const proto::Welcome& welcome, uint32_t count) {
  world.OnEngine([&] {
    for (uint32_t w = 0; w < count; ++w) {
      world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session), WindowIndex{w % 60});
    }
  });
  world.WaitForTurn();  // It posts the packets to the socket thread.
  world.OnSocketThread([] {});
}

size_t UnreadWindowsOf(const DataClient& client) {
  int bytes = 0;
  EXPECT_EQ(::ioctl(client.socket(), FIONREAD, &bytes), 0);
  return static_cast<size_t>(bytes) / sizeof(proto::WindowPacket);
}

TEST(Listener, AtMost64WindowsAreOnTheirWayToASession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  ShowWindows(world, welcome, 200);
  EXPECT_EQ(UnreadWindowsOf(client), kPacketsUnreadMax);
  for (int i = 0; i < 200; ++i) {
    const IncomingPacket packet = client.Receive();
    ASSERT_EQ(packet.kind(), PacketKind::kWindow);
    ASSERT_EQ(packet.As<proto::WindowPacket>().window, static_cast<uint32_t>(i) % 60);
    ASSERT_LE(UnreadWindowsOf(client), kPacketsUnreadMax);
  }
  EXPECT_EQ(world.sessions(), 1u);
}

TEST(Listener, ClientThatReadsNothingWhileWindowsWaitIsEnded) {
  SharedClock clock;
  SessionWorld world({.clock = &clock});
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  ShowWindows(world, welcome, kPacketsUnreadMax);
  clock.Advance(UnreadLimits{}.patience);
  EXPECT_EQ(world.sessions(), 1u) << "nothing waits for it to read";
  ShowWindows(world, welcome, 1);
  EXPECT_TRUE(world.WaitForSessions(0));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("64 descriptors that it was sent are unread")));
  for (size_t i = 0; i < kPacketsUnreadMax; ++i) ASSERT_EQ(client.Receive().kind(), PacketKind::kWindow);
  EXPECT_EQ(client.Receive().As<proto::SessionEnd>().code, CodeOf(Code::kRevoked));
}

// One user alone may have 40 unread.
constexpr UnreadLimits kFortyUnread = {.in_flight_max = 320};

TEST(Listener, UnreadWindowsOfOneSessionHoldThoseOfItsUserBackUntilItEnds) {
  SharedClock clock;
  SessionWorld world({.unread = kFortyUnread, .clock = &clock});
  DataClient other(world.socket_path());
  const auto other_welcome = other.Attach(MakeHello("other"));
  DataClient silent(world.socket_path());
  ShowWindows(world, silent.Attach(MakeHello("silent")), 40);
  EXPECT_EQ(UnreadWindowsOf(silent), 40u);
  ShowWindows(world, other_welcome, 1);
  EXPECT_EQ(UnreadWindowsOf(other), 0u);
  clock.Advance(UnreadLimits{}.patience);
  ASSERT_TRUE(world.WaitForSessions(1));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("40 descriptors that it was sent are unread")));
  for (int i = 0; i < 40; ++i) ASSERT_EQ(silent.Receive().kind(), PacketKind::kWindow);
  EXPECT_EQ(other.Receive().kind(), PacketKind::kWindow);
}

TEST(Listener, WindowsThatAnEndedSessionLeavesUnreadStillCount) {
  SessionWorld world({.unread = kFortyUnread});
  auto left = std::make_unique<DataClient>(world.socket_path());
  ShowWindows(world, left->Attach(MakeHello("left")), 40);
  left->SendGoodbye();
  ASSERT_TRUE(world.WaitForSessions(0));
  DataClient refused(world.socket_path());
  const auto refusal = refused.Attach(MakeHello("next"));
  EXPECT_EQ(refusal.code, CodeOf(Code::kDenied));
  EXPECT_THAT(std::string(refusal.message), HasSubstr("were sent 40 descriptors that they have not received"));
  if (::geteuid() == 0) {
    const int status = InChild([&] {
      if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
      DataClient theirs(world.socket_path());
      return theirs.Attach(MakeHello("theirs")).code == 0 ? 0 : 1;
    });
    EXPECT_EQ(status, 0) << "another user";
  }
  left.reset();
  DataClient next(world.socket_path());
  EXPECT_EQ(next.Attach(MakeHello("next")).code, 0);
}

// In a process of an ordinary user, to whom the kernel's limit on descriptors on their way applies.
TEST(Listener, UserWhoseSessionsEndUnreadDoesNotReachTheLimitOfTheKernel) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a user with nothing else on its way";
  const int status = InChild([] {
    const rlimit few = {.rlim_cur = 200, .rlim_max = 200};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0 || ::setgid(12346) != 0 || ::setuid(12346) != 0) return 90;
    SessionWorld world({.unread = kFortyUnread});
    std::vector<std::unique_ptr<DataClient>> left;
    for (int i = 0; i < 20; ++i) {
      left.push_back(std::make_unique<DataClient>(world.socket_path()));
      const auto welcome = left.back()->Attach(MakeHello("left"));
      if (welcome.code == CodeOf(Code::kDenied)) break;
      ShowWindows(world, welcome, 15);
      left.back()->SendGoodbye();
      if (!world.WaitForSessions(0)) return 1;
    }
    if (left.size() != 4) return 2;  // 15, 30 and 40 unread.
    const auto file = proto::CreateMemoryFile("one", kPageSize).value();
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return 3;
    const std::byte byte{};
    return SendPacket(pair[0], {&byte, 1}, {&file, 1}) == SocketOutcome::kDone ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tier::session
