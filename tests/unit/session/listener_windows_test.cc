// Windows over the data socket: handed over, asked back, and by clients that read nothing or say what nobody asked.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/hostile_descriptor.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using proto::PacketKind;
using ::testing::Contains;
using testing::DataClient;
using ::testing::HasSubstr;
using testing::IncomingPacket;
using testing::MakeHello;
using testing::OpenDescriptors;
using testing::SessionWorld;

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

TEST(Listener, WindowThatCannotBeHandedOverEndsTheSession) {
  SessionWorld world;
  DataClient client(world.socket_path());
  const auto welcome = client.Attach(MakeHello("train"));
  world.OnEngine([&] {
    world.engine.ShowWindow(static_cast<tiering::SessionId>(welcome.session),
                            WindowIndex{testing::FakeWindows::kMissing});
  });
  EXPECT_THAT(client.Receive().As<proto::SessionEnd>().message, HasSubstr("cannot hand over window"));
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

}  // namespace
}  // namespace tier::session
