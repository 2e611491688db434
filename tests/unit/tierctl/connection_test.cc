// Finding the daemon among several sockets, and what is said when there is none.
#include "tools/tierctl/connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/daemon_verbs.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {
namespace {

using control_client::Channel;
using control_client::SocketFailure;
using control_client::Summary;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;

class StatusService final : public v1::ControlService::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::GetStatusResponse* response) override {
    response->mutable_status()->set_version("here");
    return answer;
  }

 public:
  grpc::Status answer;
};

class ConnectionTest : public ::testing::Test {
 protected:
  ~ConnectionTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }
  // A socket that somebody listens on and nobody answers; closed, what a killed daemon leaves behind.
  proto::FileDescriptor Listen(const std::string& path) {
    proto::FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener.get(), 8), 0);
    return listener;
  }
  std::string Serve() {
    const std::string path = directory_ + "/control.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    return path;
  }
  static Error FailureOf(const std::vector<std::string>& sockets,
                         std::chrono::milliseconds timeout = control_client::kConnectTimeout) {
    auto channel = Channel::ConnectToFirst({.paths = sockets, .named = false}, nullptr, timeout);
    EXPECT_FALSE(channel.has_value());
    return channel ? Error{} : channel.error();
  }

  const session::testing::TemporaryDirectory folder_;
  const std::string directory_ = folder_.path();
  StatusService service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ConnectionTest, AStaleSocketDoesNotHideTheDaemonBehindIt) {
  const std::string stale = directory_ + "/stale.sock";
  (void)Listen(stale);
  const std::string live = Serve();
  const auto channel =
      Channel::ConnectToFirst({.paths = {directory_ + "/absent.sock", stale, live}, .named = false}, nullptr);
  ASSERT_TRUE(channel) << channel.error().message;
  EXPECT_EQ((*channel)->socket(), live);
}

TEST_F(ConnectionTest, WithoutADaemonEverySocketIsNamedWithItsReason) {
  const std::string stale = directory_ + "/stale.sock";
  (void)Listen(stale);
  const Error error = FailureOf({directory_ + "/absent.sock", stale});
  EXPECT_EQ(error.code, Code::kDisconnected);
  EXPECT_THAT(error.message, AllOf(HasSubstr("absent.sock: No such file"), HasSubstr("systemctl start tierd"),
                                   HasSubstr("stale.sock: nothing listens on it, as its daemon has ended")));
  EXPECT_THAT(error.message, ::testing::Not(HasSubstr("connect")))  // As gRPC has it.
      << "the reason in our words alone";
  EXPECT_EQ(Explain(error), kExitUnreachable);
}

TEST_F(ConnectionTest, ADirectoryOrTheDataSocketInItStandsForTheSocketsThere) {
  const std::string live = Serve();
  for (const std::string& socket : {directory_, directory_ + "/", directory_ + "/tierd.sock", live}) {
    const auto channel = Connect({.socket = socket, .token = {}, .output = {}});
    ASSERT_TRUE(channel) << channel.error().message;
    EXPECT_EQ((*channel)->socket(), live);
  }
}

TEST_F(ConnectionTest, TheEnvironmentNamesASocketAsTheOptionDoes) {
  const std::string live = Serve();
  for (const std::string& socket : {directory_, directory_ + "/", directory_ + "/tierd.sock", live}) {
    ASSERT_EQ(::setenv("TIERD_SOCKET", socket.c_str(), 1), 0);
    const auto channel = Connect({});
    const bool is_named = SocketIsNamed({});
    ASSERT_EQ(::unsetenv("TIERD_SOCKET"), 0);
    ASSERT_TRUE(channel) << channel.error().message;
    EXPECT_EQ((*channel)->socket(), live);
    EXPECT_TRUE(is_named);
  }
}

TEST_F(ConnectionTest, AFileThatIsNoSocketIsToldSo) {
  const std::string file = directory_ + "/plain";
  std::ofstream(file) << "x";
  const Error error = FailureOf({file});
  EXPECT_EQ(error.code, Code::kDisconnected);
  EXPECT_THAT(error.message, HasSubstr(file + ": is no socket"));
}

std::pair<int, std::string> VersionOf(const std::string& socket) {
  ::testing::internal::CaptureStdout();
  const int status = ShowVersion({.socket = socket, .token = {}, .output = {}});
  return {status, ::testing::internal::GetCapturedStdout()};
}

TEST_F(ConnectionTest, TheVersionOfADaemonThatWasNamedIsAskedOfIt) {
  EXPECT_THAT(VersionOf(directory_ + "/absent.sock"), Pair(kExitUnreachable, EndsWith("\ntierd   unknown\n")));
  EXPECT_THAT(VersionOf(Serve()), Pair(kExitOk, EndsWith("\ntierd   here\n")));
}

TEST_F(ConnectionTest, AVersionThatIsRefusedIsAFailure) {
  service_.answer = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not for you");
  EXPECT_THAT(VersionOf(Serve()), Pair(kExitRefused, EndsWith("\ntierd   unknown\n")));
}

TEST_F(ConnectionTest, WhatIsNoTokenIsRefusedBeforeItIsSent) {
  for (const char* token : {"caf\xc3\xa9", "line\n", "0123"}) {
    const auto channel = Connect({.socket = directory_, .token = token, .output = {}});
    ASSERT_FALSE(channel);
    EXPECT_EQ(channel.error().code, Code::kInvalid);
    EXPECT_THAT(channel.error().message, HasSubstr("must be 64 hexadecimal digits"));
  }
}

TEST_F(ConnectionTest, WhoNamedASocketIsNotToldTo) {
  for (const std::string& socket : {directory_, directory_ + "/absent.sock"}) {
    const auto channel = Connect({.socket = socket, .token = {}, .output = {}});
    ASSERT_FALSE(channel);
    EXPECT_EQ(channel.error().code, Code::kDisconnected);
    EXPECT_THAT(channel.error().message, AllOf(HasSubstr(socket), HasSubstr("start the daemon of " + directory_),
                                               ::testing::Not(HasSubstr("name the socket"))));
  }
}

TEST_F(ConnectionTest, WhoseEnvironmentNamesTheSocketIsNotToldToEither) {
  ASSERT_EQ(::setenv("TIERD_SOCKET", (directory_ + "/tierd.sock").c_str(), 1), 0);
  const auto named = Connect({});
  ASSERT_EQ(::unsetenv("TIERD_SOCKET"), 0);
  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message,
              AllOf(HasSubstr(directory_ + "/admin.sock: No such file"), ::testing::Not(HasSubstr("name the socket"))));
}

TEST_F(ConnectionTest, ADaemonThatHangsIsNoAbsentOne) {
  const std::string hung = directory_ + "/hung.sock";
  const auto listener = Listen(hung);
  const Error error = FailureOf({directory_ + "/absent.sock", hung}, std::chrono::milliseconds(50));
  EXPECT_EQ(error.code, Code::kTimeout) << error.message;
  EXPECT_THAT(error.message, HasSubstr("does not answer in time"));
  EXPECT_EQ(Explain(error), kExitFailure);
}

TEST_F(ConnectionTest, WhatADaemonAnswersIsNotPassedOver) {
  service_.answer = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not for you");
  const Error error = FailureOf({Serve(), directory_ + "/absent.sock"});
  EXPECT_EQ(error.code, Code::kDenied);
  EXPECT_EQ(error.message, "not for you");
  EXPECT_EQ(Explain(error), kExitRefused);
}

TEST_F(ConnectionTest, ASocketWithoutTheRightToItIsDenied) {
  const std::string path = directory_ + "/closed.sock";
  const auto listener = Listen(path);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool ordinary = ::geteuid() != 0 || ::setuid(65534) == 0;  // Root may connect to every socket.
    const Status reached = control_client::Reach(path);
    ::_exit(ordinary && !reached && reached.error().code == Code::kDenied ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ConnectionSummary, TheMostTellingReasonDecides) {
  const SocketFailure absent{"/a", {Code::kNotFound, "No such file"}};
  const SocketFailure denied{"/b", {Code::kDenied, "Permission denied"}};
  const SocketFailure dead{"/c", {Code::kDisconnected, "Connection refused"}};
  const SocketFailure hung{"/d", {Code::kTimeout, "Deadline exceeded"}};
  const auto code = [](std::vector<SocketFailure> failures) { return Summary(failures, false).code; };
  EXPECT_EQ(code({absent, absent}), Code::kDisconnected);
  EXPECT_THAT(Summary(std::vector{absent}, false).message, EndsWith("or `tierd`, or name the socket"));
  const SocketFailure systems{"/run/tierd/control.sock", absent.error};
  EXPECT_THAT(Summary(std::vector{systems}, true).message, EndsWith("or `tierd`"));
  const SocketFailure other{"/srv/trial/control.sock", absent.error};
  EXPECT_THAT(
      Summary(std::vector{other}, true).message,
      EndsWith("): start the daemon of /srv/trial (tierd --set daemon.socket_directory=/srv/trial, with its other "
               "options), or name another socket (TIERD_SOCKET)"));
  EXPECT_EQ(code({denied, absent}), Code::kDenied);
  EXPECT_EQ(code({denied, dead}), Code::kDisconnected) << "an ordinary user never has the admin socket";
  EXPECT_EQ(code({denied, hung, dead}), Code::kTimeout);
  EXPECT_EQ(Explain(Summary(std::vector{denied, absent}, false)), kExitRefused);
  EXPECT_THAT(Summary(std::vector{denied, absent}, false).message,
              HasSubstr("/b: Permission denied; /a: No such file"));
}

}  // namespace
}  // namespace tier::tierctl
