#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "libclient/client/stitch_cache.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using LeaseTest = ClientTest;

TEST_F(LeaseTest, ReleasesOfReadLeasesRingNoBellWhileTheyCanWait) {
  Start();
  EXPECT_TIER_OK(tier_seal(Create(1, 64)));
  EXPECT_TIER_OK(tier_release(Acquire(1), 0));
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
  daemon_->SaySleeping(proto::kSleepingPatiently);
  EXPECT_TIER_OK(tier_release(Acquire(1), 0));
  EXPECT_EQ(daemon_->leases_open(), 1u) << "posted, and nobody was woken";
  tier_lease* const next = Acquire(1);
  EXPECT_EQ(daemon_->leases_open(), 1u) << "this one; the request's bell brought the release too";
  EXPECT_TIER_OK(tier_release(next, 0));
  EXPECT_TIER_OK(tier_seal(Acquire(1, TIER_WRITE)));
  daemon_->Await([&] { return daemon_->leases_open() == 0; });  // A write lease's end rings at once.
}

TEST_F(LeaseTest, ARingFullOfReleasesThatCanWaitIsRungFor) {
  Start();
  EXPECT_TIER_OK(tier_seal(Create(1, 64)));
  std::vector<tier_lease*> leases;
  for (uint32_t i = 0; i < 2 * proto::kRequestEntries; ++i) leases.push_back(Acquire(1));
  daemon_->SaySleeping(proto::kSleepingPatiently);
  for (tier_lease* lease : leases) EXPECT_TIER_OK(tier_release(lease, 0));
  EXPECT_LT(daemon_->leases_open(), leases.size());
}

TEST_F(LeaseTest, WhatIsWrittenIsRead) {
  Start();
  const auto content = Random(3 * kMiB + 17, 1);
  tier_lease* const written = Create(5, content.size());
  std::ranges::copy(content, Bytes(written).begin());
  EXPECT_TIER_OK(tier_seal(written));
  tier_lease* const read = Acquire(5);
  EXPECT_TRUE(std::ranges::equal(Bytes(read), content));
  EXPECT_TIER_OK(tier_release(read, 0));
  EXPECT_EQ(Stats().acquires, 2u);
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(LeaseTest, ABlockRunIsOneRangeWithoutStitching) {
  Start();
  tier_lease* const lease = Create(1, 10 * kMiB);  // Across windows of 4 MiB.
  EXPECT_EQ(Bytes(lease).size(), 10 * kMiB);
  EXPECT_EQ(Stats().stitched_mappings, 0u);
  tier_seal(lease);
}

TEST_F(LeaseTest, ScatteredBlocksAreStitchedOnce) {
  Start({.scatter = true});
  const auto content = Random(7 * kMiB + 4097, 2);
  tier_lease* const written = Create(1, content.size());
  std::ranges::copy(content, Bytes(written).begin());
  tier_seal(written);
  for (int i = 0; i < 3; ++i) {
    tier_lease* const read = Acquire(1);
    EXPECT_TRUE(std::ranges::equal(Bytes(read), content));
    tier_release(read, 0);
  }
  EXPECT_EQ(Stats().stitched_mappings, 1u);
}

// Its kernel allows a process so many mappings only.
TEST_F(LeaseTest, WhereScatteredLeasesTakeManyMappingsTheNextAreWantedSideBySide) {
  constexpr uint64_t kBlocks = 64;
  Start({.windows = kBlocks / 2, .scatter = true});
  EXPECT_TIER_OK(tier_seal(Create(1, kBlocks * kBlockSize)));
  std::vector<tier_lease*> leases;
  const uint64_t enough = client::StitchCache::DefaultVmasMax() / 2 / kBlocks + 1;
  for (uint64_t i = 0; i < enough + 10; ++i) {
    leases.push_back(Acquire(1));
    EXPECT_EQ(Bytes(leases.back()).size(), kBlocks * kBlockSize);
  }
  EXPECT_EQ(daemon_->counters().contiguous, 0U) << "all of them have one view";
  for (uint64_t i = 1; i < enough; ++i) leases.push_back(Acquire(1));
  EXPECT_EQ(daemon_->counters().contiguous, 0U);
  leases.push_back(Acquire(1));
  EXPECT_EQ(daemon_->counters().contiguous, 1U);
  leases.push_back(Acquire(1, TIER_SCATTERED_OK));
  EXPECT_EQ(daemon_->counters().contiguous, 1U) << "it needs no view";
  for (tier_lease* lease : leases) EXPECT_TIER_OK(tier_release(lease, 0));
  EXPECT_TIER_OK(tier_release(Acquire(1), 0));
  EXPECT_EQ(daemon_->counters().contiguous, 1U) << "there are mappings again";
}

TEST_F(LeaseTest, AnOffsetInsideABlockIsStitchedToo) {
  Start({.scatter = true});
  const auto content = Random(6 * kMiB, 3);
  tier_lease* const written = Create(1, content.size());
  std::ranges::copy(content, Bytes(written).begin());
  tier_seal(written);
  tier_lease* const read = Acquire(1, 0, kMiB + 123, 4 * kMiB);
  EXPECT_TRUE(std::ranges::equal(Bytes(read), std::span(content).subspan(kMiB + 123, 4 * kMiB)));
  tier_release(read, 0);
}

TEST_F(LeaseTest, SegmentsShowTheBytesAsTheyLie) {
  Start({.scatter = true});
  tier_lease* const lease = Create(1, 5 * kMiB);
  tier_segment segments[8];
  size_t count = 0;
  ASSERT_TIER_OK(tier_lease_segments(lease, segments, 8, &count));
  ASSERT_EQ(count, 3u);
  EXPECT_EQ(segments[0].offset, 0u);
  EXPECT_EQ(segments[2].offset, 4 * kMiB);
  EXPECT_EQ(segments[2].length, kMiB);
  std::memset(segments[1].address, 7, 10);
  EXPECT_EQ(Bytes(lease)[2 * kMiB + 9], std::byte{7});
  ASSERT_TIER_OK(tier_lease_segments(lease, segments, 1, &count));  // Too small a list still learns the count.
  EXPECT_EQ(count, 3u);
  EXPECT_TIER_ERROR(tier_lease_segments(lease, segments, 8, nullptr), TIER_INVALID, "count");
  tier_seal(lease);
}

TEST_F(LeaseTest, BatchesGrantAllOfThem) {
  Start({.windows = 32});
  constexpr size_t kCount = 60;
  std::vector<tier_range> ranges(kCount);
  std::vector<tier_lease*> leases(kCount);
  for (size_t i = 0; i < kCount; ++i) ranges[i] = {i, 0, 0, 4096 + i};
  ASSERT_TIER_OK(tier_create_batch(client_, ranges.data(), kCount, 0, 0, leases.data()));
  for (size_t i = 0; i < kCount; ++i) std::ranges::fill(Bytes(leases[i]), static_cast<std::byte>(i));
  ASSERT_TIER_OK(tier_release_batch(leases.data(), kCount, 0));
  for (auto& range : ranges) range.size = 999;  // Must not reach the daemon: it would end the session.
  ASSERT_TIER_OK(tier_acquire_batch(client_, ranges.data(), kCount, 0, 0, leases.data()));
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(Bytes(leases[i]).size(), 4096 + i);
    ASSERT_EQ(Bytes(leases[i])[4095], static_cast<std::byte>(i));
  }
  EXPECT_EQ(Stats().leases_open, kCount);
  ASSERT_TIER_OK(tier_release_batch(leases.data(), kCount, 0));
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(LeaseTest, ABatchThatIsRefusedGrantsNothing) {
  Start();
  tier_seal(Create(1, 4096));
  const tier_range ranges[2] = {{1, 0, 0, 0}, {2, 0, 0, 0}};
  tier_lease* leases[2] = {};
  EXPECT_TIER_ERROR(tier_acquire_batch(client_, ranges, 2, 0, 0, leases), TIER_NOT_FOUND, "no tensor 2");
  EXPECT_EQ(leases[0], nullptr);
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(LeaseTest, RefusesZeroSizesCountsAndUnknownFlags) {
  Start();
  tier_lease* lease = nullptr;
  tier_range range{1, 0, 0, 0};
  EXPECT_TIER_ERROR(tier_create(client_, &range, 0, 0, &lease), TIER_INVALID, "size of 0");
  EXPECT_TIER_ERROR(tier_acquire_batch(client_, &range, 0, 0, 0, &lease), TIER_INVALID, "1 to 1023");
  EXPECT_TIER_ERROR(tier_acquire_batch(client_, &range, 2000, 0, 0, &lease), TIER_INVALID, "2000");
  EXPECT_TIER_ERROR(tier_acquire(client_, &range, 1u << 30, 0, &lease), TIER_INVALID, "flags");
  range = {1, ~0ull, 2, 0};
  EXPECT_TIER_ERROR(tier_acquire(client_, &range, 0, 0, &lease), TIER_INVALID, "beyond 2^64");
  EXPECT_TIER_ERROR(tier_acquire(nullptr, &range, 0, 0, &lease), TIER_INVALID, "NULL");
  EXPECT_TIER_ERROR(tier_release(nullptr, 0), TIER_INVALID, "NULL");
  tier_lease* const open = Create(9, 100);
  EXPECT_TIER_ERROR(tier_release(open, TIER_WRITE), TIER_INVALID, "flags");
  EXPECT_TIER_OK(tier_release(open, TIER_ABANDON));
}

TEST_F(LeaseTest, CreatedTwiceAlreadyExists) {
  Start();
  tier_seal(Create(1, 4096));
  const tier_range range{1, 0, 0, 4096};
  tier_lease* lease = nullptr;
  EXPECT_TIER_ERROR(tier_create(client_, &range, 0, 0, &lease), TIER_ALREADY_EXISTS, "exists");
  EXPECT_EQ(lease, nullptr);
}

TEST_F(LeaseTest, AFailedReleaseShowsInTheNextCallOnce) {
  Start();
  tier_lease* const lease = Create(1, 4096);
  daemon_->Refuse(proto::Op::kRelease, Code::kStale, "lease of yesterday");
  EXPECT_TIER_OK(tier_seal(lease));
  EXPECT_TIER_OK(tier_step(client_, UINT64_MAX));  // Answered behind the release: by then its failure is known.
  EXPECT_TIER_ERROR(tier_flush(client_, nullptr, 0, 0), TIER_STALE, "lease of yesterday");
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(proto::Op::kFlush)].load(), 0u);
  EXPECT_TIER_OK(tier_flush(client_, nullptr, 0, 0));
}

TEST_F(LeaseTest, OfSeveralFailedReleasesTheFirstIsToldAndTheOthersAreCounted) {
  Start();
  std::vector<tier_lease*> leases;
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) leases.push_back(Create(tensor, 4096));
  const auto lose = [&](const char* what) {
    daemon_->Refuse(proto::Op::kRelease, Code::kStale, what);
    EXPECT_TIER_OK(tier_seal(leases.back()));
    EXPECT_TIER_OK(tier_step(client_, UINT64_MAX));  // Answered behind the release: by then its failure is known.
    leases.pop_back();
  };
  for (const char* what : {"the first", "the second", "the third"}) lose(what);
  EXPECT_TIER_ERROR(tier_flush(client_, nullptr, 0, 0), TIER_STALE, "the first (and 2 more failed after it)");
  EXPECT_TIER_OK(tier_flush(client_, nullptr, 0, 0));
  lose("the last");
  EXPECT_TIER_ERROR(tier_flush(client_, nullptr, 0, 0), TIER_STALE, "the last");
  EXPECT_THAT(tier_last_error(), ::testing::Not(::testing::HasSubstr("more failed")));
}

TEST_F(LeaseTest, FreesAndHintsDoTheirWorkAndLeaveAFailedReleaseToOthers) {
  Start();
  const uint64_t freed[2] = {2, 3};
  for (const uint64_t tensor : freed) tier_seal(Create(tensor, 4096));
  tier_lease* const lease = Create(1, 4096);
  daemon_->Refuse(proto::Op::kRelease, Code::kStale, "lease of yesterday");
  EXPECT_TIER_OK(tier_seal(lease));
  EXPECT_TIER_OK(tier_step(client_, UINT64_MAX));  // Answered behind the release: by then its failure is known.
  EXPECT_TIER_OK(tier_step(client_, UINT64_MAX));
  const tier_range range{2, 0, 0, 0};
  EXPECT_TIER_OK(tier_prefetch(client_, &range, 1, 0));
  EXPECT_TIER_OK(tier_drop(client_, freed, 2, 0));
  EXPECT_TIER_OK(tier_free(client_, 2, 0));
  tier_op* op = nullptr;
  EXPECT_TIER_OK(tier_free_start(client_, &freed[1], 1, 0, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  for (const proto::Op op_done : {proto::Op::kStep, proto::Op::kFree})
    EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(op_done)].load(), 2u);
  for (const proto::Op op_done : {proto::Op::kPrefetch, proto::Op::kDrop})
    EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(op_done)].load(), 1u);
  tier_lease* again = nullptr;
  EXPECT_TIER_ERROR(tier_acquire(client_, &range, 0, 0, &again), TIER_STALE, "lease of yesterday");
}

TEST_F(LeaseTest, LeasesAreStaleAfterClose) {
  Start();
  tier_lease* const lease = Create(1, 4096);
  tier_close(std::exchange(client_, nullptr));
  void* address = nullptr;
  EXPECT_TIER_ERROR(tier_lease_data(lease, &address, nullptr), TIER_STALE, "closed");
  EXPECT_TIER_ERROR(tier_release(lease, 0), TIER_STALE, "closed");
}

TEST_F(LeaseTest, AStitchedLeaseSurvivesCloseUntilReleased) {
  Start({.scatter = true});
  tier_lease* const lease = Create(1, 5 * kMiB);
  EXPECT_EQ(Bytes(lease).size(), 5 * kMiB);
  tier_close(std::exchange(client_, nullptr));
  EXPECT_EQ(tier_release(lease, 0), TIER_STALE);
}

TEST_F(LeaseTest, ManyThreadsShareAClient) {
  Start({.windows = 16});
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int round = 0; round < 50; ++round) {
        const uint64_t id = static_cast<uint64_t>(t * 1000 + round);
        tier_lease* const written = Create(id, 10'000);
        std::ranges::fill(Bytes(written), static_cast<std::byte>(id));
        EXPECT_TIER_OK(tier_seal(written));
        tier_lease* const read = Acquire(id);
        EXPECT_EQ(Bytes(read)[9999], static_cast<std::byte>(id));
        EXPECT_TIER_OK(tier_release(read, 0));
        EXPECT_TIER_OK(tier_free(client_, id, 0));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(Stats().leases_open, 0u);
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

TEST_F(LeaseTest, SpinningClientsAgreeToo) {
  Start({.windows = 16}, /*spin=*/1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int round = 0; round < 100; ++round) {
        tier_seal(Create(static_cast<uint64_t>(t), 4096));
        EXPECT_TIER_OK(tier_free(client_, static_cast<uint64_t>(t), 0));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(LeaseTest, MoreReleasesThanTheRingHoldsAreAllDelivered) {
  Start({.windows = 4});
  tier_seal(Create(1, 4096));
  for (int i = 0; i < 5000; ++i) tier_release(Acquire(1), 0);
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

}  // namespace
}  // namespace tier::session_fake
