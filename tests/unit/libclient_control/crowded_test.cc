// Calls that are turned away in a burst: which ones are made again, when, and until when.
#include "libclient/control/crowded.h"

#include <future>
#include <mutex>
#include <semaphore>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/control/identity_servers.h"
#include "libclient/control/channel.h"
#include "tests/support/control/grpc_fixture.h"
#include "tests/support/control/held_calls.h"

namespace tier::control_client {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Of a clock that only pauses move.
class RepeatWhileCrowdedTest : public ::testing::Test {
 protected:
  // How often it was tried.
  int Repeat(milliseconds timeout, int turned_away, grpc::Status last = grpc::Status::OK) {
    int made = 0;
    const Attempt end = RepeatWhileCrowded(now_ + timeout,
                                           [&]() -> Attempt {
                                             if (++made <= turned_away) return {.status = kFull, .turned_away = true};
                                             return {.status = last, .turned_away = false};
                                           },
                                           {.now = [this] { return now_; },
                                            .sleep =
                                                [this](milliseconds pause) {
                                                  paused_.push_back(pause.count());
                                                  now_ += pause;
                                                },
                                            .random = [this] { return random_; }});
    turned_away_at_last_ = end.turned_away;
    return made;
  }

  const grpc::Status kFull{grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
  std::chrono::system_clock::time_point now_;
  double random_ = 1;
  std::vector<int64_t> paused_;
  bool turned_away_at_last_ = false;
};

TEST_F(RepeatWhileCrowdedTest, PausesGrowToALimitAndAreRandom) {
  EXPECT_EQ(Repeat(milliseconds(10'000), 7), 8);
  EXPECT_THAT(paused_, ElementsAre(20, 40, 80, 160, 320, 640, 640));
  EXPECT_FALSE(turned_away_at_last_);
  paused_.clear();
  random_ = 0;
  EXPECT_EQ(Repeat(milliseconds(10'000), 3), 4);
  EXPECT_THAT(paused_, ElementsAre(10, 20, 40));
}

TEST_F(RepeatWhileCrowdedTest, TheDeadlineIsKept) {
  EXPECT_EQ(Repeat(milliseconds(100), 1'000), 3);
  EXPECT_THAT(paused_, ElementsAre(20, 40)) << "the next one would end behind it";
  EXPECT_TRUE(turned_away_at_last_);
}

TEST_F(RepeatWhileCrowdedTest, WhatWasServedOrRefusedIsNotRepeated) {
  EXPECT_EQ(Repeat(milliseconds(10'000), 0), 1);
  EXPECT_EQ(Repeat(milliseconds(10'000), 0, kFull), 1);
  EXPECT_THAT(paused_, ElementsAre());
}

class CrowdedServer : public test::GrpcFixture {
 protected:
  static constexpr size_t kCalls = control::kThreadsPerIdentityMax;

  // Fills all threads but one, which waits for the next call.
  void Fill() {
    api_.on_describe = [this] { held_.Enter(); };
    for (size_t i = 0; i + 1 < kCalls; ++i) {
      calls_.push_back(std::async(std::launch::async, [this] { return Ask().status.ok(); }));
      held_.WaitForOne();
    }
  }
  Attempt Ask() {
    grpc::ClientContext context;
    return Ask(&context);
  }
  Attempt Ask(grpc::ClientContext* context) {
    SetDeadline(context);
    v1::GetStatusResponse answer;
    Attempt made{.status = stub()->GetStatus(context, {}, &answer), .turned_away = false};
    made.turned_away = WasTurnedAway(made.status, *context);
    return made;
  }
  v1::ControlService::Stub* stub() {
    std::call_once(connected_, [this] { stub_ = Stub(options_.control_socket); });
    return stub_.get();
  }

  test::HeldCalls held_;
  std::vector<std::future<bool>> calls_;
  std::once_flag connected_;
  std::unique_ptr<v1::ControlService::Stub> stub_;
};

TEST_F(CrowdedServer, ServesACallThatItTurnedAwayOnceThereIsRoom) {
  Fill();
  std::once_flag let_go;
  const Pauses pauses{.now = SystemPauses().now,
                      .sleep =
                          [&](milliseconds pause) {
                            std::call_once(let_go, [this] { held_.LetGo(); });
                            SystemPauses().sleep(pause);
                          },
                      .random = SystemPauses().random};
  // The thread that waits takes one of the two before it knows that it is the last.
  std::vector<std::future<Attempt>> beyond;
  for (int i = 0; i < 2; ++i) {
    beyond.push_back(std::async(std::launch::async, [&] {
      return RepeatWhileCrowded(
          std::chrono::system_clock::now() + std::chrono::seconds(20), [this] { return Ask(); }, pauses);
    }));
  }
  for (auto& each : beyond) EXPECT_TRUE(each.get().status.ok());
  for (auto& each : calls_) EXPECT_TRUE(each.get());
}

TEST_F(CrowdedServer, IsNamedWhereNoRoomComesInTime) {
  Fill();
  const Pauses late{.now = [] { return std::chrono::system_clock::time_point::max() - std::chrono::hours(1); },
                    .sleep = [](milliseconds) { FAIL() << "the deadline has passed"; },
                    .random = [] { return 0.0; }};
  std::counting_semaphore<> turned_away{0};
  std::vector<std::future<void>> beyond;
  for (int i = 0; i < 2; ++i) {
    beyond.push_back(std::async(std::launch::async, [&] {
      const auto ask = [&] {
        grpc::ClientContext context;
        const Attempt made = Ask(&context);
        if (!made.turned_away) return made;
        const Error error = ToError(made.status, context, "/run/tierd/admin.sock");
        EXPECT_EQ(error.code, Code::kTimeout);
        EXPECT_EQ(error.message, "too many calls of this user at once on /run/tierd/admin.sock; try again");
        turned_away.release();
        return made;
      };
      RepeatWhileCrowded(std::chrono::system_clock::now(), ask, late);
    }));
  }
  turned_away.acquire();  // Of two, one at least.
  held_.LetGo();
  for (auto& each : beyond) each.get();
  for (auto& each : calls_) EXPECT_TRUE(each.get());
}

TEST_F(CrowdedServer, ARefusalOfTierdIsNotRepeated) {
  api_.refusal = {Code::kNoMemory, "the arena has 1 GiB"};
  const auto channel = Channel::Connect(options_.control_socket.c_str(), nullptr);
  ASSERT_TRUE(channel) << channel.error().message;
  v1::OpenJobResponse answer;
  const Status refused = (*channel)->Call(&v1::ControlService::Stub::OpenJob, v1::OpenJobRequest(), &answer);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_EQ(refused.error().message, "the arena has 1 GiB");
  EXPECT_EQ(api_.opened.size(), 1U);
}

TEST_F(CrowdedServer, AMessageThatIsTooLargeIsNotRepeated) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::OpenJobRequest request;
  request.set_name(std::string(control::kRequestBytesMax + 1, 'x'));
  v1::OpenJobResponse job;
  const grpc::Status refused = stub()->OpenJob(&context, request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(WasTurnedAway(refused, context)) << refused.error_message();
  const grpc::Status ended(grpc::StatusCode::RESOURCE_EXHAUSTED, "Bandwidth exhausted or memory limit exceeded");
  EXPECT_FALSE(WasTurnedAway(ended, context)) << "it may have run";
}

}  // namespace
}  // namespace tier::control_client
