#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using proto::Op;

class SwapFaultTest : public ClientTest {
 protected:
  tier_op* StartOut(uint64_t tensor, std::span<const std::byte> bytes) {
    tier_op* op = nullptr;
    EXPECT_TIER_OK(tier_swap_out(client_, tensor, bytes.data(), bytes.size(), nullptr, &op));
    return op;
  }
  std::vector<std::byte> Whole(uint64_t tensor, size_t size) {
    std::vector<std::byte> read(size);
    tier_op* op = nullptr;
    EXPECT_TIER_OK(tier_swap_in(client_, tensor, read.data(), read.size(), nullptr, &op));
    EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
    return read;
  }
  uint64_t Requests(Op op) const { return daemon_->counters().requests[static_cast<size_t>(op)].load(); }
};

TEST_F(SwapFaultTest, RefusesWhatCanNeverBeRight) {
  Start();
  std::byte byte{};
  tier_op* op = nullptr;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 0, nullptr, &op), TIER_INVALID, "at least one byte");
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, nullptr, 1, nullptr, &op), TIER_INVALID, "not NULL");
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 1, nullptr, nullptr), TIER_INVALID, "operation");
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.memory_type = 17;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 1, &options, &op), TIER_INVALID, "element type 17");
  options = TIER_COPY_OPTIONS_INIT;
  options.check_finite = 1;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 1, &options, &op), TIER_INVALID, "neither checked nor summed");
  options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_FREE_AFTER;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 1, &options, &op), TIER_INVALID, "flags");
  options = TIER_COPY_OPTIONS_INIT;
  options.stream = &byte;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, &byte, 1, &options, &op), TIER_INVALID, "not device memory");
  EXPECT_EQ(op, nullptr);
}

TEST_F(SwapFaultTest, AFailedCreationLeavesNoTensor) {
  Start({.windows = 20});
  const auto content = Random(50 * kMiB, 1);
  daemon_->Refuse(Op::kAcquire, Code::kNoSpace, "the SSD tier has 3 bytes left");
  EXPECT_TIER_ERROR(tier_wait(StartOut(1, content), 0, nullptr), TIER_NO_SPACE, "3 bytes left");
  daemon_->Await([&] { return Requests(Op::kFree) == 1 && daemon_->leases_open() == 0; });
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_ERROR(tier_tensor(client_, 1, 0, &view), TIER_NOT_FOUND, "no tensor 1");
  EXPECT_TIER_OK(tier_flush(client_, nullptr, 0, 0));  // The failed swap left no deferred failure behind.
}

TEST_F(SwapFaultTest, AHalfReplacedTensorDoesNotPassForWhole) {
  Start({.windows = 20});
  const auto content = Random(60 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  daemon_->Refuse(Op::kAcquire, Code::kIoError, "the device is gone", /*skip=*/20);  // Some ranges are final by then.
  EXPECT_TIER_ERROR(tier_wait(StartOut(1, content), 0, nullptr), TIER_IO_ERROR, "the device is gone");
  EXPECT_EQ(Requests(Op::kTear), 1u) << "before the caller learned of it, and without asking for room";
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_OK(tier_tensor(client_, 1, 0, &view));
  EXPECT_EQ(view.torn, 1);
}

// Of the daemon itself: tests/e2e/cpp/tear_test.cc.
class RepairingSwapTest : public SwapFaultTest {
 protected:
  void SetUp() override {
    Start({.windows = 20});
    ASSERT_TIER_OK(tier_wait(StartOut(1, content_), 0, nullptr));
    const tier_range whole{1, 0, 0, 0};
    tier_lease* lease = nullptr;
    ASSERT_TIER_OK(tier_acquire(client_, &whole, TIER_WRITE, 0, &lease));
    ASSERT_TIER_OK(tier_release(lease, TIER_ABANDON));
    daemon_->Hold(Op::kStat, /*skip=*/1);
    op_ = StartOut(1, content_);
    daemon_->Await([&] { return daemon_->held() == 1; });
  }

  const std::vector<std::byte> content_ = Random(5 * kMiB, 1);
  tier_op* op_ = nullptr;
};

TEST_F(RepairingSwapTest, EndsWhenTheDaemonHasTakenItsReleases) {
  EXPECT_EQ(daemon_->leases_open(), 0u) << "asked behind them";
  EXPECT_EQ(tier_done(op_), 0);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(op_, 0, nullptr));
}

TEST_F(RepairingSwapTest, ThatIsCancelledThenHasSucceeded) {
  tier_cancel(op_);
  EXPECT_TIER_OK(tier_wait(op_, 0, nullptr));
  EXPECT_EQ(Requests(Op::kTear), 0u);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_flush(client_, nullptr, 0, 0));
}

TEST_F(RepairingSwapTest, EndsWithItsSession) {
  daemon_->EndSessions(Code::kRevoked, "the engine ends");
  EXPECT_TIER_ERROR(tier_wait(op_, 0, nullptr), TIER_REVOKED, "the engine ends");
}

TEST_F(SwapFaultTest, AReplacementThatIsRefusedLeavesTheOldTensor) {
  Start({.windows = 4});
  const auto content = Random(5 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  const auto larger = Random(64 * kMiB, 2);
  EXPECT_TIER_ERROR(tier_wait(StartOut(1, larger), 0, nullptr), TIER_NO_SPACE, "never fit");
  EXPECT_THAT(tier_last_error(), ::testing::Not(::testing::HasSubstr("gone")));
  tier_lease* const lease = Acquire(1);
  EXPECT_TRUE(std::ranges::equal(Bytes(lease), content));
  tier_release(lease, 0);
  EXPECT_EQ(Requests(Op::kFree), 0u);
}

TEST_F(SwapFaultTest, ASwapOntoWhatAnotherStillCreatedAMomentAgoAsksAgain) {
  Start({.windows = 40});
  tier_lease* const creating = Create(1, 5 * kMiB);
  daemon_->Refuse(Op::kCreate, Code::kAlreadyExists, "still being created");
  const auto content = Random(3 * kMiB, 1);
  EXPECT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  EXPECT_EQ(Whole(1, content.size()), content);
  tier_seal(creating);
}

TEST_F(SwapFaultTest, WhereRamHasNoRoomForARangeShorterOnesAreRead) {
  Start({.windows = 400});
  const auto content = Random(20 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  const uint64_t before = Requests(Op::kAcquire);
  EXPECT_EQ(Whole(1, content.size()), content);
  const uint64_t ranges = Requests(Op::kAcquire) - before;
  daemon_->Refuse(Op::kAcquire, Code::kNoMemory, "more than the limit");
  EXPECT_EQ(Whole(1, content.size()), content);
  EXPECT_GT(Requests(Op::kAcquire), before + 2 * ranges + 1);
}

TEST_F(SwapFaultTest, OnlyTheFirstRangeFailsOverLeasesOfTheCallersOwn) {
  Start({.windows = 400});
  const auto content = Random(20 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  std::vector<std::byte> read(content.size());
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_NO_WAIT_OWN;
  tier_op* op = nullptr;
  daemon_->Refuse(Op::kAcquire, Code::kWouldDeadlock, "leased by this session");
  ASSERT_TIER_OK(tier_swap_in(client_, 1, read.data(), read.size(), &options, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));  // There may be room for less.
  EXPECT_EQ(read, content);
}

TEST_F(SwapFaultTest, AReplacementThatFailsInTheMiddleNamesTheLoss) {
  Start({.windows = 20});
  const auto content = Random(5 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  const auto larger = Random(60 * kMiB, 2);
  daemon_->Refuse(Op::kAcquire, Code::kIoError, "the device is gone");
  EXPECT_TIER_ERROR(tier_wait(StartOut(1, larger), 0, nullptr), TIER_IO_ERROR,
                    "the tensor of 5242880 bytes that it was to replace is gone");
}

TEST_F(SwapFaultTest, AReplacementCancelledWhileItWaitsSaysThatItMayStillBeGranted) {
  Start({.windows = 20});
  const auto content = Random(3 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(5, content), 0, nullptr));
  daemon_->Hold(Op::kCreate);
  const auto larger = Random(5 * kMiB, 2);
  tier_op* const op = StartOut(5, larger);
  daemon_->Await([&] { return daemon_->held() == 1; });
  tier_cancel(op);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "may still take the place of the tensor of 3145728 bytes");
  daemon_->Resume();
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

TEST_F(SwapFaultTest, ATearThatIsRefusedIsSaid) {
  Start({.windows = 20});
  const auto content = Random(60 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  daemon_->Refuse(Op::kAcquire, Code::kIoError, "the device is gone", /*skip=*/20);
  daemon_->Refuse(Op::kTear, Code::kInvalid, "it will not be torn");
  tier_op* const op = StartOut(1, content);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_IO_ERROR, "the device is gone; its tensor holds new bytes");
  EXPECT_THAT(tier_last_error(), ::testing::HasSubstr("it will not be torn"));
}

TEST_F(SwapFaultTest, ACancelledSwapEndsAtOnceAndGivesBackLater) {
  Start({.windows = 20});
  const auto content = Random(20 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  daemon_->Hold(Op::kAcquire);
  tier_op* const op = StartOut(1, content);
  daemon_->Await([&] { return daemon_->held() > 0; });
  tier_cancel(op);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
  daemon_->Resume();
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
  EXPECT_EQ(Stats().leases_open, 0u);
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_OK(tier_tensor(client_, 1, 0, &view));
  EXPECT_EQ(view.torn, 0) << "not a byte of it was written";
}

TEST_F(SwapFaultTest, ACancelledCreationGrantedLateTakesNothingFromTheSwapThatReplacesIt) {
  Start({.windows = 20});
  const auto content = Random(3 * kMiB, 1);
  daemon_->Hold(Op::kCreate);
  const auto first = Random(2 * kMiB, 2);
  tier_op* const cancelled = StartOut(5, first);
  daemon_->Await([&] { return daemon_->held() == 1; });
  tier_cancel(cancelled);
  EXPECT_TIER_ERROR(tier_wait(cancelled, 0, nullptr), TIER_TIMEOUT, "cancelled");
  daemon_->Hold(Op::kStat);
  tier_op* const op = StartOut(5, content);
  daemon_->Await([&] { return daemon_->held() == 2; });
  daemon_->Resume();  // The grant and what is there by then arrive together.
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  tier_lease* const lease = Acquire(5);
  EXPECT_TRUE(std::ranges::equal(Bytes(lease), content));
  tier_release(lease, 0);
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(SwapFaultTest, ASwapBehindAnotherIsCancelledAtOnce) {
  Start({.windows = 20});
  const auto content = Random(3 * kMiB, 1);
  daemon_->Hold(Op::kStat);
  tier_op* const first = StartOut(1, content);
  tier_op* const second = StartOut(1, content);
  tier_op* const third = StartOut(1, content);
  tier_cancel(second);
  EXPECT_TIER_ERROR(tier_wait(second, 0, nullptr), TIER_TIMEOUT, "cancelled");
  EXPECT_EQ(tier_done(first), 0);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(first, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(third, 0, nullptr));
}

TEST_F(SwapFaultTest, AHangUpEndsASwap) {
  Start({.windows = 20});
  daemon_->Hold(Op::kCreate);
  const auto content = Random(20 * kMiB, 1);
  tier_op* const op = StartOut(1, content);
  tier_op* const queued = StartOut(1, content);
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->HangUp();
  EXPECT_EQ(tier_wait(op, 0, nullptr), TIER_DISCONNECTED) << tier_last_error();
  EXPECT_EQ(tier_wait(queued, 0, nullptr), TIER_DISCONNECTED) << tier_last_error();
}

TEST_F(SwapFaultTest, CloseWaitsForCopiesUnderWay) {
  Start({.windows = 20});
  const auto content = Random(40 * kMiB, 1);
  tier_op* const op = StartOut(1, content);
  tier_close(std::exchange(client_, nullptr));
  EXPECT_EQ(tier_done(op), 1);
  tier_copy_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  EXPECT_TIER_OK(tier_wait(op, 0, &outcome));
  EXPECT_EQ(outcome.bytes, content.size());
}

TEST_F(SwapFaultTest, WaitTimesOutAndTheSwapGoesOn) {
  Start({.windows = 20});
  daemon_->Hold(Op::kCreate);
  const auto content = Random(3 * kMiB, 1);
  tier_op* const op = StartOut(1, content);
  EXPECT_EQ(tier_wait(op, 5, nullptr), TIER_TIMEOUT);
  EXPECT_EQ(tier_done(op), 0);
  EXPECT_EQ(tier_poll(op, 1), 0);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

TEST_F(SwapFaultTest, ASmallSwapDoesNotBlockItsCaller) {
  Start({.windows = 20});
  daemon_->Hold(Op::kStat);
  const auto content = Random(100, 1);
  tier_op* const op = StartOut(1, content);
  EXPECT_EQ(tier_done(op), 0);
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

TEST_F(SwapFaultTest, WithoutAThreadASwapIsRefusedAndTouchesNothing) {
  Start({.windows = 20});
  const auto content = Random(3 * kMiB, 1);
  tier_op* op = nullptr;
  {
    const NoThreads none;
    EXPECT_TIER_ERROR(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &op), TIER_NO_MEMORY,
                      "tier-copy");
  }
  EXPECT_EQ(op, nullptr);
  EXPECT_TRUE(SignalsOpen());
  EXPECT_EQ(Requests(Op::kStat), 0u) << "it was queued";
  EXPECT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
}

TEST_F(SwapFaultTest, ASmallSwapThatNeedsAThreadAfterAllEndsBeforeItIsRefused) {
  Start({.windows = 20});
  daemon_->Hold(Op::kStat);
  const auto content = Random(100, 1);
  tier_op* op = nullptr;
  {
    const NoThreads none;
    EXPECT_TIER_ERROR(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &op), TIER_NO_MEMORY,
                      "tier-copy");
  }
  EXPECT_EQ(op, nullptr);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  tier_close(std::exchange(client_, nullptr));  // Nothing is left that it could wait for.
}

TEST_F(SwapFaultTest, NoMemoryArrivesWithTheDaemonsSentence) {
  Start({.windows = 2});
  const auto content = Random(64 * kMiB, 1);
  EXPECT_TIER_ERROR(tier_wait(StartOut(1, content), 0, nullptr), TIER_NO_MEMORY, "the fake is full");
  EXPECT_TIER_OK(tier_step(client_, 1));
}

}  // namespace
}  // namespace tier::session_fake
