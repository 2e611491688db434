// A test that asks the gRPC server over sockets in a directory of its own; the daemon behind it is a fake.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/grpc_server.h"
#include "tests/support/control/fake_control_api.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::test {

class GrpcFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tier-control-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
    options_.control_socket = directory_ + "/control.sock";
    options_.admin_socket = directory_ + "/admin.sock";
    options_.admin_group = "no-such-group";
    auto server = control::GrpcServer::Start(options_, api_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::unique_ptr<v1::ControlService::Stub> Stub(const std::string& path) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::ControlService::NewStub(
        grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
  }
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  std::string directory_;
  control::GrpcServerOptions options_;
  FakeControlApi api_;
  std::unique_ptr<control::GrpcServer> server_;
};

}  // namespace tier::test
