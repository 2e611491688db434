// The gRPC server on real Unix sockets, seen by a stock client; only the daemon behind ControlApi is a fake.

#include "daemon/control/grpc_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "control.grpc.pb.h"
#include "daemon/control/control_service.h"
#include "daemon/control/convert.h"
#include "tests/support/control/fake_control_api.h"

namespace tier::control {
namespace {

class GrpcServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tier-control-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
    options_.control_socket = directory_ + "/control.sock";
    options_.admin_socket = directory_ + "/admin.sock";
    options_.admin_group = "no-such-group";
    auto server = GrpcServer::Start(options_, api_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::unique_ptr<v1::Control::Stub> Stub(const std::string& path) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::Control::NewStub(
        grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
  }
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  std::string directory_;
  GrpcServerOptions options_;
  test::FakeControlApi api_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(GrpcServerTest, AnswersStatus) {
  api_.description.version = "9.9";
  api_.description.devices.resize(2);
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::Status status;
  const auto rpc = Stub(options_.control_socket)->GetStatus(&context, {}, &status);
  ASSERT_TRUE(rpc.ok()) << rpc.error_message();
  EXPECT_EQ(status.version(), "9.9");
  EXPECT_EQ(status.devices_size(), 2);
}

TEST_F(GrpcServerTest, TellsTheDaemonWhoCalls) {
  for (const bool admin : {false, true}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    context.AddMetadata(kTokenMetadataKey, "my-token");
    v1::ListJobsResponse response;
    const auto rpc = Stub(admin ? options_.admin_socket : options_.control_socket)->ListJobs(&context, {}, &response);
    ASSERT_TRUE(rpc.ok()) << rpc.error_message();
    EXPECT_EQ(api_.callers.back().uid, ::geteuid());
    EXPECT_EQ(api_.callers.back().admin, admin);
    EXPECT_EQ(api_.callers.back().token, "my-token");
  }
}

TEST_F(GrpcServerTest, CutsAnEndlessToken) {
  grpc::ClientContext context;
  SetDeadline(&context);
  context.AddMetadata(kTokenMetadataKey, std::string(4000, 'x'));
  v1::ListJobsResponse response;
  ASSERT_TRUE(Stub(options_.control_socket)->ListJobs(&context, {}, &response).ok());
  EXPECT_EQ(api_.callers.back().token.size(), proto::kTokenSize);
}

TEST_F(GrpcServerTest, RefusalsCarryCodeAndSentence) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::CloseJobRequest request;
  request.set_name("absent");
  v1::CloseJobResponse response;
  const auto rpc = Stub(options_.control_socket)->CloseJob(&context, request, &response);
  EXPECT_EQ(rpc.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(rpc.error_message(), "no job absent");
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto code = trailing.find(kCodeMetadataKey);
  ASSERT_NE(code, trailing.end());
  EXPECT_EQ(std::string(code->second.data(), code->second.size()), "NOT_FOUND");
}

TEST_F(GrpcServerTest, TensorListsAreBoundedAndSaySo) {
  api_.tensors.resize(kTensorsListedDefault + 5);
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ListTensorsRequest request;
  v1::ListTensorsResponse response;
  ASSERT_TRUE(Stub(options_.control_socket)->ListTensors(&context, request, &response).ok());
  EXPECT_EQ(response.tensors_size(), static_cast<int>(kTensorsListedDefault));
  EXPECT_TRUE(response.truncated());
}

TEST_F(GrpcServerTest, DrainTimeoutsAreBounded) {
  for (const uint32_t asked : {0u, 5u, ~0u}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainRequest request;
    request.set_timeout_ms(asked);
    v1::DrainResponse response;
    ASSERT_TRUE(Stub(options_.control_socket)->Drain(&context, request, &response).ok());
  }
  ASSERT_EQ(api_.drained.size(), 3u);
  EXPECT_EQ(api_.drained[0].second.count(), kDrainTimeoutDefaultMs);
  EXPECT_EQ(api_.drained[1].second.count(), 5);
  EXPECT_EQ(api_.drained[2].second.count(), kDrainTimeoutMaxMs);
}

TEST_F(GrpcServerTest, UnknownDevicesAreNotFound) {
  for (const uint32_t device : {1u, 65536u, ~0u}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainDeviceRequest request;
    request.set_device(device);
    v1::DrainResponse response;
    EXPECT_EQ(Stub(options_.control_socket)->DrainDevice(&context, request, &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(GrpcServerTest, WatchDeliversWhatHappensAfterItsHeaders) {
  auto stub = Stub(options_.control_socket);
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = stub->Watch(&context, {});
  reader->WaitForInitialMetadata();
  ASSERT_EQ(api_.watcher_count(), 1u);
  for (uint64_t i = 1; i <= 3; ++i) {
    session::Event event;
    event.sequence = i;
    event.kind = "job_opened";
    api_.Emit(event);
  }
  v1::Event received;
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(reader->Read(&received));
    EXPECT_EQ(received.sequence(), i);
  }
  context.TryCancel();
  while (reader->Read(&received)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcServerTest, WatchThatIsRefusedEndsAtOnceWithTheReason) {
  api_.refusal = {Code::kNoMemory, "64 watchers are there already, the limit is 64"};
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = Stub(options_.control_socket)->Watch(&context, {});
  v1::Event event;
  EXPECT_FALSE(reader->Read(&event));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), api_.refusal.message);
}

TEST_F(GrpcServerTest, StopEndsOpenStreamsAndRemovesTheSockets) {
  auto stub = Stub(options_.control_socket);
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = stub->Watch(&context, {});
  reader->WaitForInitialMetadata();
  auto drained = std::async(std::launch::async, [&] {
    v1::Event event;
    while (reader->Read(&event)) {
    }
    return reader->Finish().ok();
  });
  server_->Stop();
  EXPECT_FALSE(drained.get());
  EXPECT_EQ(api_.watcher_count(), 0u);
  EXPECT_NE(::access(options_.control_socket.c_str(), F_OK), 0);
  EXPECT_NE(::access(options_.admin_socket.c_str(), F_OK), 0);
}

TEST_F(GrpcServerTest, ReplacesAStaleSocketAndNamesAnImpossiblePath) {
  server_.reset();
  const int stale = ::open(options_.control_socket.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(stale, 0);
  ::close(stale);
  auto again = GrpcServer::Start(options_, api_);
  ASSERT_TRUE(again) << again.error().message;
  GrpcServerOptions impossible = options_;
  impossible.admin_socket = directory_ + "/" + std::string(200, 'x');
  const auto refused = GrpcServer::Start(impossible, api_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("too long"), std::string::npos);
  impossible.admin_socket = directory_ + "/absent/admin.sock";
  const auto nowhere = GrpcServer::Start(impossible, api_);
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("absent"), std::string::npos);
}

// gRPC cannot be used on both sides of a fork, so the other uid is only a connection: refused ones are closed at once.
TEST_F(GrpcServerTest, TheAdminSocketHangsUpOnStrangers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become another uid";
  ASSERT_EQ(::chmod(options_.admin_socket.c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    options_.admin_socket.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) ::_exit(3);
    char byte;
    ::_exit(::read(fd, &byte, 1) == 0 ? 0 : 4);  // End of file, and not a gRPC greeting.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tier::control
