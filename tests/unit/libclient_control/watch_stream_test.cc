// The client's end of a stream of events, which comes faster than it is read.
#include "libclient/control/watch.h"

#include <unistd.h>

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::control_client {
namespace {

constexpr uint64_t kEvents = 3 * kEventsQueuedMax;

// Sends so many events as fast as they are taken.
class EventService final : public v1::ControlService::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::GetStatusResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    v1::WatchResponse response;
    for (uint64_t i = request->since() + 1; i <= kEvents; ++i) {
      response.mutable_event()->set_sequence(i);
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }
};

class WatchStreamTest : public ::testing::Test {
 protected:
  WatchStreamTest() {
    const std::string path = directory_.path() + "/control.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = std::move(Channel::Connect(path.c_str(), nullptr).value());
  }
  ~WatchStreamTest() override { server_->Shutdown(); }
  static Result<v1::Event> Next(WatchStream& stream) { return stream.Next(std::chrono::seconds(20)); }

  const session::testing::TemporaryDirectory directory_;
  EventService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(WatchStreamTest, WhoReadsSlowlyLosesNothing) {
  const auto stream = WatchStream::Start(*channel_, {.since = 2, .recent_only = true});
  ASSERT_TRUE(stream) << stream.error().message;
  for (uint64_t i = 3; i <= kEvents; ++i) ASSERT_EQ(Next(**stream).value().sequence(), i);
  EXPECT_EQ(Next(**stream).error().code, Code::kOk) << "these were all";
  EXPECT_EQ(Next(**stream).error().code, Code::kOk) << "and it stays so";
}

TEST_F(WatchStreamTest, AStreamThatShouldGoOnAndEndsIsBrokenOff) {
  const auto stream = WatchStream::Start(*channel_, {.since = kEvents});
  ASSERT_TRUE(stream) << stream.error().message;
  EXPECT_EQ(Next(**stream).error().code, Code::kDisconnected);
}

TEST_F(WatchStreamTest, WhoGoesLeavesNoReaderBehind) {
  for (int round = 0; round < 20; ++round) {
    const auto stream = WatchStream::Start(*channel_, {.since = 0});
    ASSERT_TRUE(stream) << stream.error().message;
    EXPECT_EQ(Next(**stream).value().sequence(), 1u);  // The rest waits, in the queue and before it.
  }
}

}  // namespace
}  // namespace tier::control_client
