// Stopping in order, and stopping all the same when the engine does not answer or its mailbox is full.
#include "daemon/session/orderly_stop.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/post.hpp>

namespace tier::session {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr StopTimes kUnhurried{.drain = hours(1), .answer = hours(1), .final_packets = hours(1)};

// One thread plays both: the engine takes its mail between two handlers of the loop, while it answers at all.
class OrderlyStopTest : public ::testing::Test {
 protected:
  void RunUntilDone() {
    for (;;) {
      if (answers_) (void)mailbox_.Drain();
      if (outcome_) return;
      if (!io_.run_one_for(milliseconds(1))) io_.restart();
    }
  }

  boost::asio::io_context io_{1};
  base::Mailbox mailbox_{1};
  bool answers_ = true;
  int drained_after_ = 0;        // Questions.
  int final_packets_after_ = 0;  // Looks.
  std::vector<std::string> steps_;
  std::optional<StopOutcome> outcome_;
  OrderlyStop stop_{io_,
                    mailbox_,
                    {.start_drain = [this] { steps_.push_back("drain"); },
                     .is_drained = [this] { return drained_after_-- <= 0; },
                     .end_sessions = [this] { steps_.push_back("end"); },
                     .final_packets_sent = [this] { return final_packets_after_-- <= 0; },
                     .done =
                         [this](const StopOutcome& outcome) {
                           EXPECT_FALSE(outcome_) << "done twice";
                           outcome_ = outcome;
                         }}};
};

TEST_F(OrderlyStopTest, DrainsTellsClientsAndWaitsForFinalPackets) {
  drained_after_ = 3;
  final_packets_after_ = 3;
  EXPECT_FALSE(stop_.started());
  stop_.Start(kUnhurried);
  EXPECT_TRUE(stop_.started());
  RunUntilDone();
  EXPECT_TRUE(outcome_->drained);
  EXPECT_TRUE(outcome_->engine_answered);
  EXPECT_LT(drained_after_, 0);
  EXPECT_LT(final_packets_after_, 0);
  EXPECT_THAT(steps_, ElementsAre("drain", "end"));
}

TEST_F(OrderlyStopTest, TellsClientsWhenDrainingTakesTooLong) {
  drained_after_ = INT32_MAX;
  stop_.Start({.drain = milliseconds(1), .answer = hours(1), .final_packets = hours(1)});
  RunUntilDone();
  EXPECT_FALSE(outcome_->drained);
  EXPECT_TRUE(outcome_->engine_answered);
  EXPECT_THAT(steps_, ElementsAre("drain", "end"));
}

TEST_F(OrderlyStopTest, EndsWhenFinalPacketsDoNotLeave) {
  final_packets_after_ = INT32_MAX;
  stop_.Start({.drain = hours(1), .answer = hours(1), .final_packets = milliseconds(1)});
  RunUntilDone();
  EXPECT_TRUE(outcome_->drained);
}

TEST_F(OrderlyStopTest, EndsThoughTheEngineNeverAnswers) {
  answers_ = false;
  stop_.Start({.drain = milliseconds(1), .answer = milliseconds(1), .final_packets = hours(1)});
  RunUntilDone();
  EXPECT_FALSE(outcome_->drained);
  EXPECT_FALSE(outcome_->engine_answered);
  EXPECT_THAT(steps_, ElementsAre());
}

TEST_F(OrderlyStopTest, FullMailboxIsTriedAgainAtEachStep) {
  bool full = true;
  ASSERT_TRUE(mailbox_.TryPost([&] { full = false; }));
  stop_.Start(kUnhurried);
  EXPECT_GE(mailbox_.refused(), 1u);
  RunUntilDone();
  EXPECT_FALSE(full);
  EXPECT_TRUE(outcome_->drained && outcome_->engine_answered);
  EXPECT_THAT(steps_, ElementsAre("drain", "end"));
}

}  // namespace
}  // namespace tier::session
