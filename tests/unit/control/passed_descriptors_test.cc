// Clients of the control sockets that send descriptors: calls of others are answered meanwhile, and nothing is left.
// On a kernel that refuses descriptors at the sender (6.16), and on one that queues them.
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "tests/support/control/grpc_fixture.h"
#include "tests/support/session/hostile_descriptor.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {
namespace {

using session::testing::HostileDescriptor;
using session::testing::HostileKind;
using session::testing::OpenDescriptors;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 7540 §3.5; a SETTINGS frame is to follow.

proto::FileDescriptor ConnectTo(const std::string& path) {
  proto::FileDescriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return client;
}

class ControlDescriptors : public test::GrpcFixture,
                           public ::testing::WithParamInterface<std::tuple<HostileKind, bool>> {
 protected:
  void SetUp() override {
    std::string why_not;
    hostile_ = HostileDescriptor::Make(std::get<0>(GetParam()), &why_not);
    if (hostile_ == nullptr) GTEST_SKIP() << why_not;
    options_.descriptors_refused = std::get<1>(GetParam());
    GrpcFixture::SetUp();
  }
  bool StatusIsAnswered(const std::string& path) {
    const auto stub = Stub(path);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(session::testing::kHostileWaitMs));
    v1::GetStatusResponse status;
    return stub->GetStatus(&context, {}, &status).ok();
  }

  std::unique_ptr<HostileDescriptor> hostile_;
};

TEST_P(ControlDescriptors, HoldNoCallUp) {
  for (const std::string& path : {options_.control_socket, options_.admin_socket}) {
    ASSERT_TRUE(StatusIsAnswered(path)) << "gRPC opens what it keeps open";
  }
  const size_t before = OpenDescriptors();
  for (const std::string& path : {options_.control_socket, options_.admin_socket}) {
    const proto::FileDescriptor client = ConnectTo(path);
    // Some before the server reads, some later, and with bytes that are HTTP/2 and that are not.
    (void)session::testing::SendDescriptor(client.get(), hostile_->fd(), {kPreface, sizeof(kPreface) - 1});
    (void)session::testing::SendDescriptor(client.get(), hostile_->fd());
    EXPECT_TRUE(StatusIsAnswered(options_.control_socket));
    EXPECT_TRUE(StatusIsAnswered(options_.admin_socket));
    (void)session::testing::SendDescriptor(client.get(), hostile_->fd());
  }
  hostile_.reset();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(session::testing::kHostileWaitMs);
  while (OpenDescriptors() > before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_LE(OpenDescriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ControlDescriptors,
                         ::testing::Combine(::testing::ValuesIn(session::testing::kHostileKinds), ::testing::Bool()),
                         [](const auto& about) {
                           return std::string(HostileKindName(std::get<0>(about.param))) +
                                  (std::get<1>(about.param) ? "RefusedByTheKernel" : "Queued");
                         });

}  // namespace
}  // namespace tier::control
