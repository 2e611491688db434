// Started calls that nobody takes, and a ring that the daemon does not read: what must not wait does not, and nothing
// else hangs for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "libclient/swap/copy_scheduler.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using proto::Op;

class StartedTest : public ClientTest {
 protected:
  int StartFlush(tier_op** op) { return tier_flush_start(client_, &kTensor, 1, 0, op); }
  // As many as there may be.
  std::vector<tier_op*> StartAll() {
    std::vector<tier_op*> ops(swap::kStartedMax);
    for (tier_op*& op : ops) EXPECT_TIER_OK(StartFlush(&op));
    return ops;
  }
  void FreeUnwaited(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      tier_op* op = nullptr;
      ASSERT_TIER_OK(tier_free_start(client_, &kTensor, 1, 0, &op));
      tier_cancel(op);
      EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
    }
  }
  // One that takes half of the request ring.
  tier_op* StartLong() {
    const std::vector<uint64_t> tensors(proto::kItemsPerRequestMax, kTensor);
    tier_op* op = nullptr;
    EXPECT_TIER_OK(tier_flush_start(client_, tensors.data(), tensors.size(), 0, &op));
    return op;
  }
  int AcquireWith(uint32_t flags, uint32_t timeout_ms) {
    const tier_range range{kTensor, 0, 0, 0};
    tier_lease* lease = nullptr;
    const int code = tier_acquire(client_, &range, flags, timeout_ms, &lease);
    if (lease != nullptr) tier_release(lease, 0);
    return code;
  }
  // The fake reads no ring meanwhile: this runs under its lock.
  void WhileNothingIsRead(const std::function<void()>& body) {
    daemon_->Await([&] {
      body();
      return true;
    });
  }

  static constexpr uint64_t kTensor = 7;
};

TEST_F(StartedTest, TheirNumberIsLimitedAndOtherCallsFindRoom) {
  Start({.windows = 20});
  auto ops = StartAll();
  tier_op* more = nullptr;
  EXPECT_TIER_ERROR(StartFlush(&more), TIER_NO_MEMORY, "512 started calls of this client have not been ended");
  EXPECT_THAT(tier_last_error(), ::testing::HasSubstr("tier_wait"));
  EXPECT_EQ(more, nullptr);
  tier_seal(Create(kTensor, 4096));
  EXPECT_EQ(AcquireWith(0, 0), TIER_OK);
  EXPECT_TIER_OK(tier_step(client_, 1));
  const auto content = Random(5 * kMiB, 1);
  tier_op* swap = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &swap));
  EXPECT_TIER_OK(tier_wait(swap, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(ops.back(), 0, nullptr));
  EXPECT_TIER_OK(StartFlush(&ops.back()));
  for (tier_op* op : ops) EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

// As when a collector of garbage lets go of many tensors at a time.
TEST_F(StartedTest, FreesThatAreGivenUpAreNeverRefusedNorLost) {
  Start();
  daemon_->Hold(Op::kFree);
  constexpr uint64_t kCount = 3 * proto::kRequestsOutstandingMax;
  FreeUnwaited(kCount);
  daemon_->Resume();
  daemon_->Await([&] { return daemon_->counters().requests[static_cast<size_t>(Op::kFree)].load() == kCount; });
  EXPECT_TIER_OK(tier_step(client_, 1));
  tier_op* op = nullptr;
  ASSERT_TIER_OK(StartFlush(&op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

// Another session has leases on what they free, and keeps them.
TEST_F(StartedTest, FreesThatAreGivenUpHoldUpNothingOfOtherTensors) {
  Start({.windows = 20});
  const uint64_t other = kTensor + 1;
  tier_seal(Create(other, 4096));
  daemon_->Hold(Op::kFree);
  FreeUnwaited(3 * proto::kRequestsOutstandingMax);
  tier_release(Acquire(other), 0);
  EXPECT_TIER_OK(tier_step(client_, 1));
  const auto content = Random(5 * kMiB, 1);
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, other + 1, content.data(), content.size(), nullptr, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  ASSERT_TIER_OK(tier_flush_start(client_, &other, 1, 0, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  daemon_->Resume();
}

TEST_F(StartedTest, WhatIsAskedBehindAFreeThatWasGivenUpGoesBehindIt) {
  Start();
  daemon_->Hold(Op::kFree);
  FreeUnwaited(swap::kAbandonedMax + 1);
  const auto content = Random(5 * kMiB, 1);
  tier_op *swap = nullptr, *flush = nullptr, *other = nullptr;
  ASSERT_TIER_OK(StartFlush(&flush));
  ASSERT_TIER_OK(tier_swap_out(client_, kTensor, content.data(), content.size(), nullptr, &swap));
  const uint64_t other_tensor = kTensor + 1;
  ASSERT_TIER_OK(tier_flush_start(client_, &other_tensor, 1, 0, &other));
  EXPECT_TIER_OK(tier_wait(other, 0, nullptr));
  EXPECT_TIER_ERROR(tier_wait(swap, 1, nullptr), TIER_TIMEOUT, "it goes on");
  EXPECT_EQ(tier_done(flush), 0);
  EXPECT_EQ(AcquireWith(0, 1), TIER_TIMEOUT) << tier_last_error();
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kStat)].load(), 0u);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(swap, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(flush, 0, nullptr));
  EXPECT_EQ(AcquireWith(0, 0), TIER_OK);
}

TEST_F(StartedTest, AFreeThatSomebodyWaitsForIsSentBeforeThoseThatWereGivenUp) {
  Start();
  daemon_->Hold(Op::kFree);
  FreeUnwaited(swap::kAbandonedMax + 1);
  const uint64_t other = kTensor + 1;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &other, 1, 0, &op));
  EXPECT_EQ(tier_poll(op, 1), 0);
  daemon_->Await([&] { return daemon_->held() == swap::kAbandonedMax + 1; });
  daemon_->Resume();
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_NOT_FOUND, "no tensor 8");
}

TEST_F(StartedTest, TheyWaitForNoRoomOnTheRing) {
  Start();
  std::vector<tier_op*> ops;
  WhileNothingIsRead([&] {
    while (ops.size() < 4) ops.push_back(StartLong());
    EXPECT_EQ(tier_done(ops[2]), 0);
    EXPECT_EQ(tier_poll(ops[3], 1), 0);
  });
  for (tier_op* op : ops) EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kFlush)].load(), 4u);
}

TEST_F(StartedTest, WhatMustNotWaitForASwapWaitsForRoomOnTheRing) {
  Start();
  tier_seal(Create(kTensor, 4096));
  std::vector<tier_op*> ops;
  const tier_range range{kTensor, 0, 0, 0};
  tier_lease* lease = nullptr;
  tier_op* acquire = nullptr;
  WhileNothingIsRead([&] {
    while (ops.size() < 3) ops.push_back(StartLong());
    EXPECT_TIER_OK(tier_acquire_start(client_, &range, 1, TIER_NO_WAIT, 0, &lease, &acquire));
    EXPECT_EQ(tier_done(acquire), 0);
  });
  EXPECT_TIER_OK(tier_wait(acquire, 0, nullptr));
  tier_release(lease, 0);
  for (tier_op* op : ops) EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
}

TEST_F(StartedTest, CallsKeepTheirDeadlinesWithoutRoomOnTheRing) {
  Start();
  std::vector<tier_op*> ops;
  tier_op* late = nullptr;
  WhileNothingIsRead([&] {
    while (ops.size() < 2) ops.push_back(StartLong());
    EXPECT_TIER_ERROR(AcquireWith(0, 1), TIER_TIMEOUT, "no request could be sent");
    ops.push_back(StartLong());  // Waits for room, and what is asked after it goes behind it.
    EXPECT_TIER_ERROR(AcquireWith(TIER_NO_WAIT_OWN, 1), TIER_TIMEOUT, "no request could be sent");
    const tier_range range{kTensor, 0, 0, 0};
    tier_lease* lease = nullptr;
    EXPECT_TIER_OK(tier_acquire_start(client_, &range, 1, 0, 1, &lease, &late));
    EXPECT_TIER_ERROR(tier_wait(late, 0, nullptr), TIER_TIMEOUT, "no request could be sent");
  });
  for (tier_op* op : ops) EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kAcquire)].load(), 0u);
}

}  // namespace
}  // namespace tier::session_fake
