// Clients that send descriptors: the daemon takes none, whatever they are, and serves the others meanwhile. On a kernel
// that refuses them at the sender (6.16), and on one that queues them.
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/session/hostile_descriptor.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::DataClient;
using testing::HostileDescriptor;
using testing::HostileKind;
using testing::MakeHello;
using testing::OpenDescriptors;
using testing::SessionWorld;

std::string Bytes(const proto::Hello& hello) { return {reinterpret_cast<const char*>(&hello), sizeof(hello)}; }

// A sentence, or the reset of a socket that is closed with the packet unread.
bool IsEnd(const testing::IncomingPacket& packet, proto::PacketKind kind) {
  if (packet.closed) return true;
  const bool refused = kind == proto::PacketKind::kSessionEnd || packet.As<proto::Welcome>().code != 0;
  return packet.kind() == kind && refused;
}

bool KernelRefusesDescriptors() {
  const proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  RefuseDescriptors(socket.get());
  return DescriptorsRefused(socket.get());
}

class PassedDescriptors : public ::testing::TestWithParam<std::tuple<HostileKind, bool>> {
 protected:
  void SetUp() override {
    std::string why_not;
    hostile_ = HostileDescriptor::Make(std::get<0>(GetParam()), &why_not);
    if (hostile_ == nullptr) GTEST_SKIP() << why_not;
  }
  static testing::SessionWorldOptions Options() { return {.descriptors_refused = std::get<1>(GetParam())}; }
  // Sends `bytes` with the descriptor. The socket thread does not read meanwhile: the reference in flight becomes the
  // last. False: the kernel refused.
  bool SendHostile(SessionWorld& world, DataClient& client, const std::string& bytes) {
    bool sent = false;
    world.OnSocketThread([&] {
      sent = testing::SendDescriptor(client.socket(), hostile_->fd(), bytes) == 0;
      if (sent) hostile_->DropOwn();
    });
    return sent;
  }
  // A close in the background ends soon after; nobody is told.
  static bool WaitForDescriptors(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(testing::kWaitMs);
    while (OpenDescriptors() > count && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return OpenDescriptors() <= count;
  }
  std::unique_ptr<HostileDescriptor> hostile_;
};

TEST_P(PassedDescriptors, WithHelloHoldNobodyUp) {
  SessionWorld world(Options());
  DataClient neighbour(world.socket_path());
  ASSERT_EQ(neighbour.Attach(MakeHello("neighbour")).code, 0);
  const size_t before = OpenDescriptors();
  {
    DataClient client(world.socket_path());
    const bool sent = SendHostile(world, client, Bytes(MakeHello("train")));
    if (sent) {
      EXPECT_TRUE(IsEnd(client.Receive(), proto::PacketKind::kWelcome));
    }
    DataClient next(world.socket_path());
    EXPECT_EQ(next.Attach(MakeHello("next")).code, 0);
  }
  EXPECT_TRUE(world.WaitForSessions(1));
  hostile_.reset();
  EXPECT_TRUE(WaitForDescriptors(before));
}

TEST_P(PassedDescriptors, InASessionEndIt) {
  SessionWorld world(Options());
  DataClient neighbour(world.socket_path());
  ASSERT_EQ(neighbour.Attach(MakeHello("neighbour")).code, 0);
  const size_t before = OpenDescriptors();
  {
    DataClient client(world.socket_path());
    ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
    // Behind an empty packet, which must not pass for the end of what the client has sent.
    const bool sent = ::send(client.socket(), "", 0, MSG_NOSIGNAL) == 0 && SendHostile(world, client, "x");
    DataClient next(world.socket_path());
    EXPECT_EQ(next.Attach(MakeHello("next")).code, 0);
    if (sent) {
      EXPECT_TRUE(IsEnd(client.Receive(), proto::PacketKind::kSessionEnd));
    }
  }
  EXPECT_TRUE(world.WaitForSessions(1));
  hostile_.reset();
  EXPECT_TRUE(WaitForDescriptors(before));
}

TEST_P(PassedDescriptors, BehindAGoodbyeHoldNobodyUp) {
  SessionWorld world(Options());
  {
    DataClient client(world.socket_path());
    ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
    world.OnSocketThread([&] {
      client.SendGoodbye();
      if (testing::SendDescriptor(client.socket(), hostile_->fd()) == 0) hostile_->DropOwn();
    });
    DataClient next(world.socket_path());
    EXPECT_EQ(next.Attach(MakeHello("next")).code, 0);
  }
  EXPECT_TRUE(world.WaitForSessions(0));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PassedDescriptors,
                         ::testing::Combine(::testing::ValuesIn(testing::kHostileKinds), ::testing::Bool()),
                         [](const auto& about) {
                           return std::string(HostileKindName(std::get<0>(about.param))) +
                                  (std::get<1>(about.param) ? "RefusedByTheKernel" : "Queued");
                         });

TEST(RefusedDescriptors, CostTheSenderOnlyHisPacket) {
  if (!KernelRefusesDescriptors()) GTEST_SKIP() << "needs SO_PASSRIGHTS (Linux 6.16)";
  SessionWorld world;
  DataClient client(world.socket_path());
  EXPECT_EQ(testing::SendDescriptor(client.socket(), STDERR_FILENO, Bytes(MakeHello("train"))), EPERM);
  EXPECT_EQ(client.Attach(MakeHello("train")).code, 0) << "nothing of it arrived";
  EXPECT_EQ(testing::SendDescriptor(client.socket(), STDERR_FILENO), EPERM);
  EXPECT_EQ(world.sessions(), 1u);
}

}  // namespace
}  // namespace tier::session
