// Requests that meet an unfinished swap of their own client: flags and deadlines hold there too, and what is only
// started never waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "libclient/abi/handle.h"
#include "libclient/client/channel.h"
#include "libclient/swap/request_handle.h"
#include "libclient/swap/swap_handle.h"
#include "tests/unit/libclient/asleep.h"
#include "tests/unit/libclient/client_fixture.h"
#include "tests/unit/libclient/credits.h"

namespace tier::session_fake {
namespace {

using client::Credit;
using proto::Op;

class BehindSwapTest : public ClientTest {
 protected:
  // A swap of tensor 1 that goes on until Resume.
  void StartSwap() {
    Start({.windows = 20});
    daemon_->Hold(Op::kStat);
    ASSERT_TIER_OK(tier_swap_out(client_, 1, content_.data(), content_.size(), nullptr, &swap_));
    daemon_->Await([&] { return daemon_->held() == 1; });
  }
  void EndSwap() {
    daemon_->Resume();
    EXPECT_TIER_OK(tier_wait(swap_, 0, nullptr));
  }
  int AcquireWith(uint32_t flags, uint32_t timeout_ms) {
    tier_lease* lease = nullptr;
    const int code = tier_acquire(client_, &kRange, flags, timeout_ms, &lease);
    EXPECT_EQ(lease, nullptr);
    return code;
  }
  Requested UseCredits(Credit credit, uint32_t left) {
    return session_fake::UseCredits(client_->session->channel(), credit, left);
  }
  void Take(const Requested& requests) { session_fake::Take(client_->session->channel(), requests); }
  uint64_t Requests(Op op) const { return daemon_->counters().requests[static_cast<size_t>(op)].load(); }

  static constexpr tier_range kRange{1, 0, 0, 0};
  const std::vector<std::byte> content_ = Random(3 * kMiB, 1);
  tier_op* swap_ = nullptr;
};

TEST_F(BehindSwapTest, AnAcquireThatMustNotWaitDoesNot) {
  StartSwap();
  EXPECT_TIER_ERROR(AcquireWith(TIER_NO_WAIT, 0), TIER_TIMEOUT, "a swap of this client's own");
  EXPECT_TIER_ERROR(AcquireWith(TIER_NO_WAIT_OWN, 0), TIER_WOULD_DEADLOCK, "tier_wait");
  EndSwap();
}

TEST_F(BehindSwapTest, ASwapThatMustNotWaitDoesNot) {
  StartSwap();
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_NO_WAIT;
  std::vector<std::byte> back(content_.size());
  tier_op* op = nullptr;
  const auto swap_in = [&] { return tier_swap_in(client_, 1, back.data(), back.size(), &options, &op); };
  EXPECT_TIER_ERROR(swap_in(), TIER_TIMEOUT, "a swap of this client's own");
  EXPECT_EQ(op, nullptr);
  EndSwap();
  ASSERT_TIER_OK(swap_in());
  ASSERT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(back, content_);
}

TEST_F(BehindSwapTest, AnAcquiresDeadlineHoldsThereToo) {
  StartSwap();
  EXPECT_TIER_ERROR(AcquireWith(0, 1), TIER_TIMEOUT, "a swap of this client's own");
  EXPECT_EQ(Requests(Op::kAcquire), 0u);
  EndSwap();
}

TEST_F(BehindSwapTest, AStartedAcquireReturnsAndIsSentWhenTheSwapHasEnded) {
  StartSwap();
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &op));
  EXPECT_EQ(tier_done(op), 0);
  EXPECT_EQ(tier_poll(op, 1), 0);
  EndSwap();
  ASSERT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_TRUE(std::ranges::equal(Bytes(lease), content_));
  tier_release(lease, 0);
}

TEST_F(BehindSwapTest, AStartedFreeGoesBehindTheSwapsThatWereThere) {
  StartSwap();
  const uint64_t tensor = 1;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &op));
  tier_op* later = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content_.data(), content_.size(), nullptr, &later));
  EXPECT_EQ(Requests(Op::kFree), 0u);
  EndSwap();
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(later, 0, nullptr));
  tier_release(Acquire(1), 0);
}

TEST_F(BehindSwapTest, AStartedFlushOfEverythingIsBehindEverySwap) {
  StartSwap();
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_flush_start(client_, nullptr, 0, 0, &op));
  EXPECT_EQ(Requests(Op::kFlush), 0u);
  EndSwap();
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

TEST_F(BehindSwapTest, AStartedAcquireKeepsItsFlagsAndItsDeadline) {
  StartSwap();
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, TIER_NO_WAIT, 0, &lease, &op));
  EXPECT_EQ(tier_done(op), 1);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "a swap of this client's own");
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 1, &lease, &op));
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "a swap of this client's own");
  EndSwap();
  EXPECT_EQ(Requests(Op::kAcquire), 1u) << "the swap's own";
}

TEST_F(BehindSwapTest, AStartedAcquireThatIsCancelledIsNeverSent) {
  StartSwap();
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &op));
  tier_cancel(op);
  EXPECT_EQ(tier_done(op), 1);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
  EndSwap();
  EXPECT_EQ(Requests(Op::kAcquire), 1u) << "the swap's own";
}

TEST_F(BehindSwapTest, AStartedFreeThatIsCancelledIsSentAllTheSame) {
  StartSwap();
  const uint64_t tensor = 1;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &op));
  tier_cancel(op);
  EXPECT_EQ(tier_done(op), 1);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
  EXPECT_EQ(Requests(Op::kFree), 0u);
  EndSwap();
  daemon_->Await([&] { return Requests(Op::kFree) == 1; });
  EXPECT_TIER_OK(tier_step(client_, 1));
}

TEST_F(BehindSwapTest, ASwapWaitsForRoomOnTheRingAndHoldsNobodyUp) {
  Start({.windows = 20});
  const auto calls = UseCredits(Credit::kCall, 0);
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content_.data(), content_.size(), nullptr, &swap_));
  EXPECT_EQ(tier_done(swap_), 0);
  EXPECT_TIER_ERROR(tier_wait(swap_, 1, nullptr), TIER_TIMEOUT, "it goes on");
  Take(calls);
  EXPECT_TIER_OK(tier_wait(swap_, 0, nullptr));
}

TEST_F(BehindSwapTest, ACallThatFindsNoRoomKeepsItsDeadline) {
  Start({.windows = 20});
  const auto calls = UseCredits(Credit::kCall, 0);
  EXPECT_TIER_ERROR(AcquireWith(0, 1), TIER_TIMEOUT, "no request could be sent");
  Take(calls);
  EXPECT_EQ(AcquireWith(0, 0), TIER_NOT_FOUND);
  EXPECT_EQ(Requests(Op::kAcquire), 1u);
}

TEST_F(BehindSwapTest, WhatASwapHeldBackWaitsForRoomOnTheRingAndHoldsNobodyUp) {
  StartSwap();
  const uint64_t tensor = 1;
  tier_op *first = nullptr, *second = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &first));
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &second));
  const auto calls = UseCredits(Credit::kStarted, 1);
  EndSwap();
  EXPECT_EQ(tier_poll(first, 10'000), 1);
  EXPECT_EQ(tier_done(second), 0);
  EXPECT_EQ(Requests(Op::kFree), 1u);
  EXPECT_TIER_OK(tier_wait(first, 0, nullptr));
  EXPECT_TIER_ERROR(tier_wait(second, 0, nullptr), TIER_NOT_FOUND, "no tensor 1");
  Take(calls);
}

// Behind the swap is a call, and behind the call a started request: when the swap ends, the copy thread has nothing to
// do, and when the call leaves the order, there is no room for the request. No later call tries again for it.
TEST_F(BehindSwapTest, AStartedRequestThatFindsNoRoomWhenTheCallInFrontLeavesIsSentLater) {
  StartSwap();
  std::atomic<pid_t> caller{0};
  std::thread calling([&] {
    caller = ::gettid();
    tier_lease* lease = nullptr;
    EXPECT_TIER_OK(tier_acquire(client_, &kRange, 0, 0, &lease));
    tier_release(lease, 0);
  });
  while (caller.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(FallsAsleep(caller.load()));
  const uint64_t tensor = 1;
  tier_op* flush = nullptr;
  ASSERT_TIER_OK(tier_flush_start(client_, &tensor, 1, 0, &flush));
  EXPECT_EQ(tier_poll(flush, 1), 0);  // The first wait for a request wakes the copy threads; later ones do not.
  const auto started = UseCredits(Credit::kStarted, 0);
  EndSwap();
  calling.join();
  Take(started);
  ASSERT_EQ(tier_poll(flush, 10'000), 1) << "no thread tried to send the request again";
  EXPECT_TIER_OK(tier_wait(flush, 0, nullptr));
}

// Outcomes that the caller has not collected when it closes it will not collect: it is in tier_close.
TEST_F(BehindSwapTest, ClosingASwapDependsOnNoOutcomeThatIsNotCollected) {
  Start({.windows = 20});
  (void)UseCredits(Credit::kStarted, 0);
  daemon_->Hold(Op::kStat);
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content_.data(), content_.size(), nullptr, &swap_));
  EXPECT_EQ(tier_done(swap_), 0);
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->Resume();
  tier_close(std::exchange(client_, nullptr));
  EXPECT_TIER_OK(tier_wait(swap_, 0, nullptr));
}

TEST_F(BehindSwapTest, WhatASwapHeldBackHoldsNoCloseUp) {
  StartSwap();
  const uint64_t tensor = 1;
  std::vector<tier_op*> frees(3);
  for (tier_op*& op : frees) ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &op));
  tier_lease* lease = nullptr;
  tier_op* acquire = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &acquire));
  (void)UseCredits(Credit::kStarted, 0);
  daemon_->Resume();
  tier_close(std::exchange(client_, nullptr));
  EXPECT_TIER_OK(tier_wait(swap_, 0, nullptr));
  EXPECT_TIER_ERROR(tier_wait(acquire, 0, nullptr), TIER_STALE, "this client was closed");
  EXPECT_EQ(lease, nullptr);
  for (tier_op* op : frees) EXPECT_NE(tier_wait(op, 0, nullptr), TIER_TIMEOUT);
}

TEST_F(BehindSwapTest, WhatNoThreadIsThereToDoCloseDoes) {
  daemon_ = std::make_unique<FakeDaemon>(FakeOptions{.windows = 20});
  client::SessionOptions options;
  options.attach.sockets = {daemon_->socket_path()};
  client::Session* const session = client::Session::Open(options).value();
  auto scheduler = std::make_shared<swap::CopyScheduler>(*session, swap::CopySchedulerOptions{.threads = 0});
  auto content = content_;
  auto swapped = swap::StartSwap(scheduler, {.tensor = 1, .memory = content.data(), .size = content.size()}).value();
  const proto::RequestItem swapping{.tensor = 1};
  auto freed = swap::StartRequest(scheduler, {.op = Op::kFree, .items = {&swapping, 1}}, {}).value();
  (void)session_fake::UseCredits(session->channel(), Credit::kCall, 1);
  EXPECT_FALSE(swapped->done() || freed->done());
  EXPECT_TRUE(scheduler->CheckInvariants());
  scheduler->Close();
  EXPECT_TRUE(scheduler->CheckInvariants());
  EXPECT_EQ(swapped->Take().value().bytes, content.size());
  EXPECT_EQ(freed->Take().error().code, Code::kStale);
  session->Close();
  swapped = freed = nullptr;
  scheduler = nullptr;
  session->Drop();
}

TEST_F(BehindSwapTest, AHangUpEndsWhatWasNeverSent) {
  StartSwap();
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &op));
  daemon_->HangUp();
  EXPECT_EQ(tier_wait(op, 0, nullptr), TIER_DISCONNECTED) << tier_last_error();
  EXPECT_EQ(tier_wait(swap_, 0, nullptr), TIER_DISCONNECTED);
}

// Cancels `op` from here while another thread sleeps in tier_wait of it.
void CancelUnderAWaiter(tier_op* op) {
  std::atomic<pid_t> waiter{0};
  std::thread waiting([&] {
    waiter = ::gettid();
    EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
  });
  while (waiter.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(FallsAsleep(waiter.load()));
  tier_cancel(op);
  waiting.join();
}

TEST_F(BehindSwapTest, ACancelWakesTheThreadThatWaits) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->Hold(Op::kAcquire);
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &op));
  CancelUnderAWaiter(op);
  daemon_->Resume();
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

TEST_F(BehindSwapTest, ACancelWakesTheThreadThatWaitsForTheSwapInFront) {
  StartSwap();
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &kRange, 1, 0, 0, &lease, &op));
  CancelUnderAWaiter(op);
  EndSwap();
}

}  // namespace
}  // namespace tier::session_fake
