// The control sockets of owners, and the calls that open and close them.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/grpc_server.h"
#include "daemon/session/owner_table.h"
#include "tests/support/control/grpc_fixture.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {
namespace {

class OwnerCalls : public test::GrpcFixture {
 protected:
  // Who the daemon says calls by this socket.
  session::Caller Call(const std::string& socket) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ListJobsResponse response;
    EXPECT_TRUE(Stub(socket)->ListJobs(&context, {}, &response).ok()) << socket;
    return api_.callers.back();
  }
  static grpc::StatusCode List(v1::ControlService::Stub& stub,
                               std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    v1::ListJobsResponse response;
    return stub.ListJobs(&context, {}, &response).error_code();
  }
};

TEST_F(OwnerCalls, CallersOfAnOwnersSocketAreTheOwnerAndNoAdministrator) {
  const std::string path = directory_ + "/owner.sock";
  ASSERT_TRUE(server_->ListenFor(session::kOwnerUidFirst + 7, path));
  struct stat about{};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0666U);
  const session::Caller owner = Call(path);
  EXPECT_EQ(owner.uid, session::kOwnerUidFirst + 7);
  EXPECT_FALSE(owner.admin) << "though the kernel says that it is root";
  EXPECT_EQ(Call(options_.control_socket).uid, ::geteuid());
  server_->StopFor(session::kOwnerUidFirst + 7);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(Call(options_.control_socket).uid, ::geteuid()) << "the others are served";
  ASSERT_TRUE(server_->ListenFor(session::kOwnerUidFirst + 7, path)) << "again";
  EXPECT_EQ(Call(path).uid, session::kOwnerUidFirst + 7);
  server_->Stop();
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "nothing is left of it";
}

// The name of the owner is given up: who is connected is the owner no more.
TEST_F(OwnerCalls, TheConnectionsOfAnOwnerCanBeEnded) {
  const std::string path = directory_ + "/owner.sock";
  ASSERT_TRUE(server_->ListenFor(session::kOwnerUidFirst, path));
  const auto connected = Stub(path);
  const auto other = Stub(options_.control_socket);
  ASSERT_EQ(List(*connected), grpc::StatusCode::OK);
  ASSERT_EQ(List(*other), grpc::StatusCode::OK);
  server_->StopFor(session::kOwnerUidFirst);
  EXPECT_EQ(List(*connected), grpc::StatusCode::OK) << "what is connected goes on";
  server_->EndFor(session::kOwnerUidFirst);
  EXPECT_EQ(List(*connected), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(List(*other), grpc::StatusCode::OK);
  server_->EndFor(session::kOwnerUidFirst + 1);  // No one of it has ever come.
}

// An administrator's call ends an owner's connections while the server itself is stopped: neither waits for the other.
TEST_F(OwnerCalls, AnOwnersEndAndThatOfTheServerDoNotWaitForEachOther) {
  const std::string path = directory_ + "/owner.sock";
  ASSERT_TRUE(server_->ListenFor(session::kOwnerUidFirst, path));
  EXPECT_EQ(Call(path).uid, session::kOwnerUidFirst);
  const auto admin = Stub(options_.admin_socket);
  std::promise<void> called;
  api_.on_drain = [&] {
    called.set_value();
    // Until the stop is under way: the server that serves this call takes no other.
    while (List(*admin, std::chrono::milliseconds(500)) == grpc::StatusCode::OK) std::this_thread::yield();
    server_->EndFor(session::kOwnerUidFirst);
  };
  std::thread caller([&] {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainResponse response;
    (void)admin->Drain(&context, {}, &response);
  });
  called.get_future().get();
  server_->Stop();
  caller.join();
}

// With more owners than there may be servers each newcomer ends another's, whose calls may last.
TEST_F(OwnerCalls, AServerThatIsEndedKeepsNoOneFromConnecting) {
  server_.reset();
  options_.identities_max = 1;
  std::promise<void> called;
  std::promise<void> go_on;
  api_.on_drain = [&] {
    called.set_value();
    go_on.get_future().wait();
  };
  server_ = GrpcServer::Start(options_, api_).value();
  std::vector<std::string> paths;
  for (uint32_t owner = 0; owner < 4; ++owner) {
    paths.push_back(directory_ + "/owner-" + std::to_string(owner));
    ASSERT_TRUE(server_->ListenFor(session::kOwnerUidFirst + owner, paths.back()));
  }
  const auto first = Stub(paths[0]);
  std::thread caller([&] {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainResponse response;
    (void)first->Drain(&context, {}, &response);
  });
  called.get_future().get();
  for (size_t other = 1; other < paths.size(); ++other)
    EXPECT_EQ(List(*Stub(paths[other])), grpc::StatusCode::OK) << other;
  server_->StopFor(session::kOwnerUidFirst);
  std::promise<void> ended;
  std::thread ender([&] {
    server_->EndFor(session::kOwnerUidFirst);
    ended.set_value();
  });
  auto is_ended = ended.get_future();
  EXPECT_EQ(List(*Stub(options_.control_socket)), grpc::StatusCode::OK);
  EXPECT_EQ(is_ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "its call goes on";
  go_on.set_value();
  is_ended.get();
  ender.join();
  caller.join();
}

TEST_F(OwnerCalls, AnOwnersSocketThatCannotBeMadeIsRefusedAndTheOthersStay) {
  const Status refused = server_->ListenFor(session::kOwnerUidFirst, directory_ + "/missing/owner.sock");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("/missing/owner.sock"), std::string::npos);
  EXPECT_FALSE(server_->ListenFor(session::kOwnerUidFirst, directory_ + "/" + std::string(120, 'x')));
  EXPECT_EQ(Call(options_.control_socket).uid, ::geteuid());
}

TEST_F(OwnerCalls, SocketsAreOpenedClosedAndListedByCall) {
  const auto stub = Stub(options_.admin_socket);
  grpc::ClientContext open, list, close, after, refused;
  for (grpc::ClientContext* context : {&open, &list, &close, &after, &refused}) SetDeadline(context);
  v1::OpenSocketRequest request;
  request.set_owner("pod-a");
  v1::OpenSocketResponse opened;
  ASSERT_TRUE(stub->OpenSocket(&open, request, &opened).ok());
  EXPECT_EQ(opened.socket().owner(), "pod-a");
  EXPECT_EQ(opened.socket().uid(), session::kOwnerUidFirst);
  EXPECT_EQ(opened.socket().directory(), "/run/tierd/owners/pod-a");
  v1::ListSocketsResponse listed;
  ASSERT_TRUE(stub->ListSockets(&list, {}, &listed).ok());
  ASSERT_EQ(listed.sockets_size(), 1);
  EXPECT_TRUE(listed.sockets(0).open());
  v1::CloseSocketRequest closing;
  closing.set_owner("pod-a");
  closing.set_purge(true);
  v1::CloseSocketResponse closed;
  ASSERT_TRUE(stub->CloseSocket(&close, closing, &closed).ok());
  ASSERT_TRUE(stub->ListSockets(&after, {}, &listed).ok());
  EXPECT_EQ(listed.sockets_size(), 0);
  api_.refusal = {Code::kDenied, "only an administrator may open a socket for an owner"};
  EXPECT_EQ(stub->OpenSocket(&refused, request, &opened).error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

}  // namespace
}  // namespace tier::control
