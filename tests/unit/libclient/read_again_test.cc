// A swap-in of several ranges, while others write the tensor between them. This fake has room for one range at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using proto::Op;

class ReadAgainTest : public ClientTest {
 protected:
  void SetUp() override {
    Start({.windows = 2});
    tier_op* op = nullptr;
    ASSERT_TIER_OK(tier_swap_out(client_, 1, old_.data(), old_.size(), nullptr, &op));
    ASSERT_TIER_OK(tier_wait(op, 0, nullptr));
  }
  int SwapIn(tier_copy_outcome* outcome = nullptr) {
    tier_op* op = nullptr;
    EXPECT_TIER_OK(
        tier_swap_in(client_, 1, read_.data(), options_.whole == 0 ? 5 * kMiB : read_.size(), &options_, &op));
    return tier_wait(op, 0, outcome);
  }

  const std::vector<std::byte> old_ = Random(5 * kMiB + 100, 1);
  const std::vector<std::byte> new_ = Random(5 * kMiB + 100, 2);
  std::vector<std::byte> read_ = std::vector<std::byte>(5 * kMiB + 100);
  tier_copy_options options_ = TIER_COPY_OPTIONS_INIT;
};

TEST_F(ReadAgainTest, ATensorThatIsRewrittenBetweenTwoRangesIsReadAsOneContent) {
  options_.memory_type = options_.tensor_type = TIER_FP32;
  options_.check_finite = options_.sum_squares = 1;
  tier_copy_outcome undisturbed{}, outcome{};
  undisturbed.struct_size = outcome.struct_size = sizeof outcome;
  daemon_->RewriteBeforeAcquires(1, new_, /*skip=*/0);
  ASSERT_TIER_OK(SwapIn(&undisturbed));
  daemon_->RewriteBeforeAcquires(1, old_, /*skip=*/0);
  ASSERT_TIER_OK(SwapIn());
  ASSERT_EQ(read_, old_);
  daemon_->RewriteBeforeAcquires(1, new_, /*skip=*/1);
  EXPECT_TIER_OK(SwapIn(&outcome));
  EXPECT_EQ(read_, new_);
  EXPECT_EQ(outcome.bytes, undisturbed.bytes);
  EXPECT_EQ(outcome.non_finite_count, undisturbed.non_finite_count);
  EXPECT_EQ(std::memcmp(&outcome.sum_of_squares, &undisturbed.sum_of_squares, sizeof(double)), 0);
}

TEST_F(ReadAgainTest, ATensorThatIsReplacedBetweenTwoRangesIsReadAsOneContent) {
  daemon_->ReplaceBeforeAcquires(1, new_, /*skip=*/1);
  EXPECT_TIER_OK(SwapIn());
  EXPECT_EQ(read_, new_);
}

TEST_F(ReadAgainTest, ATensorThatIsFreedAfterReadingIsReadAsOneContentFirst) {
  options_.flags = TIER_FREE_AFTER;
  daemon_->RewriteBeforeAcquires(1, new_, /*skip=*/2);
  EXPECT_TIER_OK(SwapIn());
  EXPECT_EQ(read_, new_);
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_EQ(tier_tensor(client_, 1, 0, &view), TIER_NOT_FOUND);
}

TEST_F(ReadAgainTest, WritersThatNeverPauseMakeItEndWithItsTimeout) {
  options_.timeout_ms = 1;
  daemon_->RewriteBeforeAcquires(1, new_, /*skip=*/1, /*count=*/UINT32_MAX);
  EXPECT_TIER_ERROR(SwapIn(), TIER_TIMEOUT, "was written each time that this swap read it");
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(ReadAgainTest, AWriterThatWaitsForRangesOfThisSwapIsLetPass) {
  daemon_->Refuse(Op::kAcquire, Code::kWouldDeadlock, "under an unfinished swap_out of session 2", /*skip=*/1);
  EXPECT_TIER_OK(SwapIn());
  EXPECT_EQ(read_, old_);
}

TEST_F(ReadAgainTest, AWriterThatWaitsForRangesOfASwapOfAPartIsLetPass) {
  options_.whole = 0;
  daemon_->Refuse(Op::kAcquire, Code::kWouldDeadlock, "under an unfinished swap_out of session 2", /*skip=*/1);
  EXPECT_TIER_OK(SwapIn());
  EXPECT_TRUE(std::equal(read_.begin(), read_.begin() + 5 * kMiB, old_.begin()));
}

TEST_F(ReadAgainTest, AWriterThatWaitsForOtherLeasesOfTheCallerIsReported) {
  daemon_->Refuse(Op::kAcquire, Code::kWouldDeadlock, "under an unfinished swap_out of session 2");
  EXPECT_TIER_ERROR(SwapIn(), TIER_WOULD_DEADLOCK, "unfinished swap_out of session 2");
}

TEST_F(ReadAgainTest, ASwapThatIsCancelledOrLosesItsSessionMeanwhileEnds) {
  daemon_->RewriteBeforeAcquires(1, new_, /*skip=*/1, /*count=*/UINT32_MAX);
  tier_op *cancelled = nullptr, *ended = nullptr;
  ASSERT_TIER_OK(tier_swap_in(client_, 1, read_.data(), read_.size(), nullptr, &cancelled));
  daemon_->Await([&] { return daemon_->counters().requests[static_cast<size_t>(Op::kAcquire)].load() > 20; });
  tier_cancel(cancelled);
  EXPECT_TIER_ERROR(tier_wait(cancelled, 0, nullptr), TIER_TIMEOUT, "cancelled");
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
  ASSERT_TIER_OK(tier_swap_in(client_, 1, read_.data(), read_.size(), nullptr, &ended));
  daemon_->EndSessions(Code::kRevoked, "the engine ends");
  EXPECT_TIER_ERROR(tier_wait(ended, 0, nullptr), TIER_REVOKED, "the engine ends");
}

}  // namespace
}  // namespace tier::session_fake
