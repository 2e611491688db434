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
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/control_service.h"
#include "daemon/control/convert.h"
#include "daemon/control/identity_servers.h"
#include "proto/mapping.h"
#include "tests/support/control/grpc_fixture.h"
#include "tests/support/control/held_calls.h"
#include "tests/support/proto/thread_shortage.h"
#include "tier/v1/control.grpc.pb.h"
#include "tier/v1/error_details.pb.h"

namespace tier::control {
namespace {

class GrpcServerTest : public test::GrpcFixture {};

// grpc.health.v1.Health/Check as any probe asks it: 1 is SERVING, 2 NOT_SERVING, 0 any refusal.
int Health(const std::string& socket, const std::string& service) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  std::string bytes = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;  // Field 1, a string.
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  if (!done.get_future().get().ok()) return 0;
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return 0;
  std::string answer;
  for (const auto& each : slices) answer.append(reinterpret_cast<const char*>(each.begin()), each.size());
  return answer.size() == 2 && answer[0] == 8 ? answer[1] : 0;  // Field 1, a number.
}

TEST_F(GrpcServerTest, HealthSaysWhetherNewWorkIsTaken) {
  const std::string& socket = options_.control_socket;
  for (const char* service : {"", "tier.v1.ControlService"}) EXPECT_EQ(Health(socket, service), 1) << service;
  for (const char* unknown : {"no.such.Service", "tier.v1.Control"}) EXPECT_EQ(Health(socket, unknown), 0) << unknown;
  server_->SetServing(false);
  for (const char* service : {"", "tier.v1.ControlService"}) EXPECT_EQ(Health(socket, service), 2) << service;
  EXPECT_EQ(Health(options_.admin_socket, ""), 2) << "of a server made later";
  server_->SetServing(true);
  EXPECT_EQ(Health(socket, "tier.v1.ControlService"), 1);
  EXPECT_EQ(Health(options_.admin_socket, ""), 1);
}

TEST_F(GrpcServerTest, UndrainIsCarriedToTheDaemonWithItsCaller) {
  v1::UndrainResponse response;
  {
    grpc::ClientContext context;
    SetDeadline(&context);
    EXPECT_TRUE(Stub(options_.admin_socket)->Undrain(&context, {}, &response).ok());
  }
  EXPECT_EQ(api_.undrained, 1);
  EXPECT_TRUE(api_.callers.back().admin);
  api_.refusal = {Code::kDenied, "no"};
  grpc::ClientContext context;
  SetDeadline(&context);
  EXPECT_EQ(Stub(options_.control_socket)->Undrain(&context, {}, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(api_.undrained, 1);
}

TEST_F(GrpcServerTest, AnswersStatus) {
  api_.description.version = "9.9";
  api_.description.ssd_mode = "reduced";
  api_.description.ssd_mode_reason = "the disk is full";
  api_.description.devices.resize(2);
  api_.description.engine.index_failure = "nothing can be persisted";
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::GetStatusResponse response;
  const auto rpc = Stub(options_.control_socket)->GetStatus(&context, {}, &response);
  ASSERT_TRUE(rpc.ok()) << rpc.error_message();
  const v1::NodeStatus& status = response.status();
  EXPECT_EQ(status.version(), "9.9");
  EXPECT_EQ(status.devices_size(), 2);
  EXPECT_EQ(status.ssd_mode(), v1::SSD_MODE_REDUCED);
  EXPECT_EQ(status.ssd_mode_reason(), "the disk is full");
  EXPECT_EQ(status.index_failure(), "nothing can be persisted");
  ASSERT_EQ(status.degraded_by_size(), 2) << "this, and the mode";
  EXPECT_EQ(status.degraded_by(1), "nothing can be persisted");
}

TEST_F(GrpcServerTest, TellsOfARefusedReloadAndTheFileToAdministratorsAlone) {
  const auto status_at = [&](const std::string& socket) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GetStatusResponse response;
    const auto rpc = Stub(socket)->GetStatus(&context, {}, &response);
    EXPECT_TRUE(rpc.ok()) << rpc.error_message();
    return response.status();
  };
  EXPECT_EQ(status_at(options_.admin_socket).reload_failure(), "");
  api_.description.reload_failure = {
      .unix_time_ms = 1'763'985'601'250, .why = "tierd.toml:3: no such user: bob", .for_others = "the reload failed"};
  EXPECT_EQ(status_at(options_.admin_socket).reload_failure(), "tierd.toml:3: no such user: bob");
  EXPECT_EQ(status_at(options_.control_socket).reload_failure(), "the reload failed");
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

TEST_F(GrpcServerTest, AListOfJobsHasTokensOnlyWhereTheyAreAskedFor) {
  api_.jobs = {{.name = "train", .token = std::string(64, 'a'), .counters = {}}};
  for (const bool asked : {false, true}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ListJobsRequest request;
    request.set_with_tokens(asked);
    v1::ListJobsResponse response;
    ASSERT_TRUE(Stub(options_.control_socket)->ListJobs(&context, request, &response).ok());
    EXPECT_EQ(response.jobs(0).token(), asked ? std::string(64, 'a') : "");
  }
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::SetJobRequest change;
  change.set_name("train");
  v1::SetJobResponse changed;
  ASSERT_TRUE(Stub(options_.control_socket)->SetJob(&context, change, &changed).ok());
  EXPECT_EQ(changed.job().token(), "") << "who changes its terms needs none";
}

TEST_F(GrpcServerTest, TheLargestPoolFitsInOneMessage) {
  for (uint32_t i = 0; i < 8192; ++i) {
    api_.pool.owners.push_back({.job = std::string(64, 'j'), .uid = UINT32_MAX, .figures = {}});
    api_.pool.windows.push_back(
        {.now = {.index = WindowIndex{i}, .size = 1 << 30, .place = uint64_t{i} << 30}, .owner = i});
  }
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::GetPoolMapResponse pool;
  const auto rpc = Stub(options_.control_socket)->GetPoolMap(&context, {}, &pool);
  ASSERT_TRUE(rpc.ok()) << rpc.error_message();
  EXPECT_EQ(pool.windows_size(), 8192);
  EXPECT_EQ(pool.owners_size(), 8192);
  EXPECT_EQ(api_.callers.back().uid, ::geteuid());
  api_.refusal = {Code::kTimeout, "the engine did not answer"};
  grpc::ClientContext again;
  SetDeadline(&again);
  EXPECT_EQ(Stub(options_.control_socket)->GetPoolMap(&again, {}, &pool).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
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
  v1::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(rpc.error_details()));
  EXPECT_EQ(details.code(), rpc.error_code());
}

TEST_F(GrpcServerTest, ARefusalThatQuotesALongNameStillArrives) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::CloseJobRequest request;
  request.set_name(std::string(60'000, 'x'));
  v1::CloseJobResponse response;
  const auto rpc = Stub(options_.control_socket)->CloseJob(&context, request, &response);
  EXPECT_EQ(rpc.error_code(), grpc::StatusCode::NOT_FOUND) << rpc.error_message().substr(0, 200);
  EXPECT_EQ(rpc.error_message().find("no job xxx"), 0u);
}

TEST_F(GrpcServerTest, DrainTimeoutsAreBoundedAndTheAnswerIsCarried) {
  api_.stays_in_ram = true;
  for (const int64_t asked : {0, 5, INT32_MAX}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainRequest request;
    request.mutable_timeout()->set_seconds(asked);
    v1::DrainResponse response;
    ASSERT_TRUE(Stub(options_.control_socket)->Drain(&context, request, &response).ok());
    EXPECT_TRUE(response.stays_in_ram());
  }
  ASSERT_EQ(api_.drained.size(), 3u);
  EXPECT_EQ(api_.drained[0].second, kDrainTimeoutDefault);
  EXPECT_EQ(api_.drained[1].second, std::chrono::seconds(5));
  EXPECT_EQ(api_.drained[2].second, kDrainTimeoutMax);
}

TEST_F(GrpcServerTest, ANegativeDrainTimeoutIsRefusedBeforeAnythingIsDrained) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::DrainRequest request;
  request.mutable_timeout()->set_seconds(-5);
  v1::DrainResponse response;
  const auto rpc = Stub(options_.control_socket)->Drain(&context, request, &response);
  EXPECT_EQ(rpc.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(rpc.error_message().find("must not be negative"), std::string::npos) << rpc.error_message();
  EXPECT_TRUE(api_.drained.empty());
}

TEST_F(GrpcServerTest, DrainsUnderWayAreLimitedAndLeaveOtherCallsTheirThreads) {
  test::HeldCalls held;
  api_.on_drain = [&] { held.Enter(); };
  const auto drain = [this] {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainResponse response;
    return Stub(options_.control_socket)->Drain(&context, {}, &response);
  };
  std::vector<std::future<grpc::Status>> drains;
  for (int i = 0; i < kDrainsMax; ++i) {
    drains.push_back(std::async(std::launch::async, drain));
    held.WaitForOne();
  }
  const grpc::Status refused = drain();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error_message().find("the limit"), std::string::npos);
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::GetStatusResponse status;
  EXPECT_TRUE(Stub(options_.control_socket)->GetStatus(&context, {}, &status).ok());
  held.LetGo();
  for (auto& call : drains) EXPECT_TRUE(call.get().ok());
  EXPECT_TRUE(drain().ok());
}

TEST_F(GrpcServerTest, CallsBeyondTheThreadsOfAUserAreRefusedAndNotQueued) {
  test::HeldCalls held;
  api_.on_describe = [&] { held.Enter(); };
  std::vector<std::future<grpc::Status>> calls;
  const auto stub = Stub(options_.control_socket);
  const auto call = [&] {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GetStatusResponse status;
    return stub->GetStatus(&context, {}, &status);
  };
  // One thread always waits for the next call: one fewer can be in calls.
  for (int i = 0; i < kThreadsPerIdentityMax - 1; ++i) {
    calls.push_back(std::async(std::launch::async, call));
    held.WaitForOne();
  }
  std::vector<std::future<grpc::Status>> beyond;
  for (int i = 0; i < 8; ++i) beyond.push_back(std::async(std::launch::async, call));
  // At most one of these becomes a call: the thread that waits takes it before it knows that it is the last.
  size_t refused = 0;
  while (refused + 1 < beyond.size()) {
    refused = 0;
    for (auto& one : beyond) refused += one.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  }
  held.LetGo();
  for (auto& one : calls) EXPECT_TRUE(one.get().ok());
  size_t exhausted = 0;
  for (auto& one : beyond) exhausted += one.get().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  EXPECT_GE(exhausted, beyond.size() - 1);
}

TEST_F(GrpcServerTest, RequestsAreBoundedInSize) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::OpenJobRequest request;
  request.set_name(std::string(kRequestBytesMax + 1, 'x'));
  v1::OpenJobResponse job;
  EXPECT_EQ(Stub(options_.control_socket)->OpenJob(&context, request, &job).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(api_.opened.empty());
}

// A connection as the kernel has it, without a client's gRPC behind it.
class RawConnection {
 public:
  explicit RawConnection(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  // What the server says of itself at once: its SETTINGS frame. Empty: it hung up.
  std::string Greeting() {
    std::string bytes(512, '\0');
    const ssize_t length = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(length > 0 ? static_cast<size_t>(length) : 0);
    return bytes;
  }

 private:
  proto::FileDescriptor fd_;
};

TEST_F(GrpcServerTest, ConnectionsOfAUserAreLimitedAndComeAndGo) {
  std::list<RawConnection> connections;
  for (size_t i = 0; i < kConnectionsPerIdentityMax; ++i) {
    ASSERT_NE(connections.emplace_back(options_.control_socket).Greeting(), "") << i;
  }
  EXPECT_EQ(RawConnection(options_.control_socket).Greeting(), "");
  EXPECT_NE(RawConnection(options_.admin_socket).Greeting(), "") << "an administrator's are counted apart";
  connections.clear();
  bool admitted = false;  // Once gRPC has noticed that one of the others is gone.
  for (int i = 0; i < 10'000 && !admitted; ++i) admitted = !RawConnection(options_.control_socket).Greeting().empty();
  EXPECT_TRUE(admitted);
}

TEST_F(GrpcServerTest, HangsUpAndSaysSoWhereTheSystemGivesNoThreads) {
  server_.reset();
  std::promise<std::string> warning;
  options_.on_warning = [&](const std::string& text) { warning.set_value(text); };
  server_ = GrpcServer::Start(options_, api_).value();
  {
    const tier::testing::ThreadShortage shortage(1);  // gRPC would end the process.
    EXPECT_EQ(RawConnection(options_.control_socket).Greeting(), "");
    EXPECT_NE(warning.get_future().get().find("RLIMIT_AS"), std::string::npos);
  }
  EXPECT_NE(RawConnection(options_.control_socket).Greeting(), "");
}

TEST_F(GrpcServerTest, IsNotStartedWhereTheSystemGivesNoThread) {
  server_.reset();
  const tier::testing::ThreadShortage shortage;
  const auto refused = GrpcServer::Start(options_, api_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory) << refused.error().message;
  EXPECT_NE(::access(options_.control_socket.c_str(), F_OK), 0) << "nothing is left of it";
}

TEST_F(GrpcServerTest, CallsAtATimeOnAConnectionAreLimited) {
  const std::string greeting = RawConnection(options_.control_socket).Greeting();
  // RFC 7540 §6.5: a header of 9 bytes, then pairs of an identifier (2 bytes) and a value (4).
  ASSERT_GT(greeting.size(), 9u);
  ASSERT_EQ(greeting[3], 4) << "SETTINGS";
  int streams = -1;
  for (size_t at = 9; at + 6 <= 9u + static_cast<uint8_t>(greeting[2]); at += 6) {
    if (greeting[at] == 0 && greeting[at + 1] == 3) streams = static_cast<uint8_t>(greeting[at + 5]);
  }
  EXPECT_EQ(streams, kStreamsPerConnectionMax);
}

TEST_F(GrpcServerTest, UnknownDevicesAreNotFound) {
  for (const uint32_t device : {1u, 65536u, ~0u}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainDeviceRequest request;
    request.set_device(device);
    v1::DrainDeviceResponse response;
    EXPECT_EQ(Stub(options_.control_socket)->DrainDevice(&context, request, &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
    grpc::ClientContext second;
    SetDeadline(&second);
    v1::RetryDeviceRequest retry;
    retry.set_device(device);
    v1::RetryDeviceResponse retried;
    EXPECT_EQ(Stub(options_.control_socket)->RetryDevice(&second, retry, &retried).error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(GrpcServerTest, TellsOfMissingDevicesAndPurgesThem) {
  api_.description.engine.missing = {{.uuid = "1-2", .path = "/dev/b", .reason = "it is gone", .lost_job_count = 3}};
  api_.stored = {{.uid = 1001, .name = "lost", .damage = "it is gone", .lost_devices = {"1-2"}}};
  api_.purged_jobs = {"1001/lost"};
  auto stub = Stub(options_.admin_socket);
  grpc::ClientContext list;
  SetDeadline(&list);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(stub->ListDevices(&list, {}, &devices).ok());
  ASSERT_EQ(devices.missing_size(), 1);
  EXPECT_EQ(devices.missing(0).uuid(), "1-2");
  EXPECT_EQ(devices.missing(0).path(), "/dev/b");
  EXPECT_EQ(devices.missing(0).reason(), "it is gone");
  EXPECT_EQ(devices.missing(0).lost_job_count(), 3u);
  grpc::ClientContext jobs;
  SetDeadline(&jobs);
  v1::ListJobsResponse answered;
  ASSERT_TRUE(stub->ListJobs(&jobs, {}, &answered).ok());
  ASSERT_EQ(answered.stored_manifests(0).lost_devices_size(), 1);
  EXPECT_EQ(answered.stored_manifests(0).lost_devices(0), "1-2");
  v1::PurgeDeviceRequest request;
  request.set_uuid("1-2");
  grpc::ClientContext purge;
  SetDeadline(&purge);
  v1::PurgeDeviceResponse purged;
  ASSERT_TRUE(stub->PurgeDevice(&purge, request, &purged).ok());
  EXPECT_EQ(api_.purged, std::vector<std::string>{"1-2"});
  ASSERT_EQ(purged.jobs_size(), 1);
  EXPECT_EQ(purged.jobs(0), "1001/lost");
  api_.refusal = {Code::kNotFound, "no device is missing"};
  grpc::ClientContext again;
  SetDeadline(&again);
  EXPECT_EQ(stub->PurgeDevice(&again, request, &purged).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, StopEndsOpenStreamsAndRemovesTheSockets) {
  auto stub = Stub(options_.control_socket);
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = stub->Watch(&context, {});
  reader->WaitForInitialMetadata();
  auto drained = std::async(std::launch::async, [&] {
    v1::WatchResponse response;
    while (reader->Read(&response)) {
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
