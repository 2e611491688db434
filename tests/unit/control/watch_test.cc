// Streams of events to gRPC clients: what comes, from where on, and to a slow one.
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/grpc_server.h"
#include "daemon/control/watch_reactor.h"
#include "tests/support/control/grpc_fixture.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {
namespace {

class WatchTest : public test::GrpcFixture {};

TEST_F(WatchTest, WatchDeliversWhatHappensAfterItsHeaders) {
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
  v1::WatchResponse received;
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(reader->Read(&received));
    EXPECT_EQ(received.event().sequence(), i);
  }
  context.TryCancel();
  while (reader->Read(&received)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(WatchTest, WatchBeginsBehindTheEventThatTheCallerHas) {
  for (uint64_t i = 1; i <= 3 * kWatchQueueMax; ++i) api_.recent.push_back({.sequence = i, .kind = "job_opened"});
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::WatchRequest request;
  request.set_since(2);
  request.set_recent_only(true);
  auto reader = Stub(options_.control_socket)->Watch(&context, request);
  v1::WatchResponse response;
  for (uint64_t i = 3; i <= 3 * kWatchQueueMax; ++i) {
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.event().sequence(), i);
  }
  EXPECT_FALSE(reader->Read(&response)) << "the recent ones were asked for alone";
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(api_.watcher_count(), 0u);
}

TEST_F(WatchTest, WithoutRecentEventsTheirStreamEndsAtOnce) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::WatchRequest request;
  request.set_recent_only(true);
  auto reader = Stub(options_.control_socket)->Watch(&context, request);
  v1::WatchResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

// The daemon's thread for this watcher waits: nothing is lost here, and the daemon counts what is lost there.
TEST_F(WatchTest, ASlowReaderOfAWatchLosesNothingOnTheWay) {
  auto stub = Stub(options_.control_socket);
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = stub->Watch(&context, {});
  reader->WaitForInitialMetadata();
  constexpr uint64_t kEvents = 20 * kWatchQueueMax;
  auto emitted = std::async(std::launch::async, [&] {
    session::Event event{.kind = "job_opened", .message = std::string(4000, 'x')};
    for (event.sequence = 1; event.sequence <= kEvents; ++event.sequence) api_.Emit(event);
  });
  v1::WatchResponse received;
  for (uint64_t i = 1; i <= kEvents; ++i) {
    ASSERT_TRUE(reader->Read(&received));
    ASSERT_EQ(received.event().sequence(), i);
  }
  emitted.get();
  context.TryCancel();
  while (reader->Read(&received)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(WatchTest, AWatcherThatReadsNothingMoreLetsGoWhenItIsCancelled) {
  auto stub = Stub(options_.control_socket);
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = stub->Watch(&context, {});
  reader->WaitForInitialMetadata();
  auto emitted = std::async(std::launch::async, [&] {
    session::Event event{.kind = "job_opened", .message = std::string(4000, 'x')};
    for (event.sequence = 1; event.sequence <= 20 * kWatchQueueMax; ++event.sequence) api_.Emit(event);
  });
  context.TryCancel();
  v1::WatchResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  emitted.get();  // It waits for room no more.
}

TEST_F(WatchTest, WatchThatIsRefusedEndsAtOnceWithTheReason) {
  api_.refusal = {Code::kNoMemory, "64 watchers are there already, the limit is 64"};
  grpc::ClientContext context;
  SetDeadline(&context);
  auto reader = Stub(options_.control_socket)->Watch(&context, {});
  v1::WatchResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), api_.refusal.message);
}

}  // namespace
}  // namespace tier::control
