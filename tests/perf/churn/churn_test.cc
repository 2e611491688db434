// The allocators that the pool is compared with do what they are said to do: no page is given out twice, what is free
// comes together again, and each takes the place that its method names. And a slice of the trace goes through the
// engine, in RAM alone and with SSD.
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/perf/churn/best_fit.h"
#include "tests/perf/churn/buddy.h"
#include "tests/perf/churn/engine_run.h"
#include "tests/perf/churn/marked_transfers.h"
#include "tests/perf/churn/pool.h"
#include "tests/perf/churn/segregated_fit.h"
#include "tests/perf/churn/trace.h"

namespace tier::churn {
namespace {

using Make = std::function<std::unique_ptr<Allocator>(uint64_t)>;

Place Taken(Allocator& allocator, uint64_t pages) {
  Place place;
  EXPECT_TRUE(allocator.TryAllocate(pages, &place)) << pages;
  return place;
}

class EachOfOneRange : public testing::TestWithParam<Make> {};

TEST_P(EachOfOneRange, GivesNoPageTwiceAndAllOfThemAgain) {
  constexpr uint64_t kPages = 3 << 12;  // No power of two.
  const auto allocator = GetParam()(kPages);
  std::mt19937 random(7);
  std::map<uint64_t, Place> live;  // By first page.
  for (int step = 0; step < 20'000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const uint64_t pages = 1 + random() % 300;
      Place place;
      if (!allocator->TryAllocate(pages, &place)) continue;
      ASSERT_GE(place.pages, pages);
      ASSERT_LE(place.first + place.pages, kPages);
      const auto next = live.lower_bound(place.first);
      ASSERT_TRUE(next == live.end() || place.first + place.pages <= next->first) << step;
      if (next != live.begin()) {
        const auto& [first, before] = *std::prev(next);
        ASSERT_LE(first + before.pages, place.first) << step;
      }
      live.emplace(place.first, place);
    } else {
      auto at = live.lower_bound(random() % kPages);
      if (at == live.end()) at = live.begin();
      allocator->Free(at->second);
      live.erase(at);
    }
    uint64_t held = 0;
    for (const auto& [first, place] : live) held += place.pages;
    ASSERT_EQ(allocator->held_pages(), held) << step;
  }
  for (const auto& [first, place] : live) allocator->Free(place);
  EXPECT_EQ(allocator->held_pages(), 0U);
  EXPECT_EQ(Taken(*allocator, 1 << 13).pages, uint64_t{1} << 13);  // It is whole again.
}

INSTANTIATE_TEST_SUITE_P(Allocators, EachOfOneRange, testing::Values(MakeBestFit, MakeBuddy, MakeSegregatedFit));

TEST(BestFit, TakesTheSmallestHoleThatIsLargeEnough) {
  const auto allocator = MakeBestFit(1000);
  const Place large = Taken(*allocator, 100);
  (void)Taken(*allocator, 1);
  const Place small = Taken(*allocator, 20);
  (void)Taken(*allocator, 1);
  allocator->Free(large);
  allocator->Free(small);
  EXPECT_EQ(Taken(*allocator, 15).first, small.first);
  EXPECT_EQ(Taken(*allocator, 30).first, large.first);
}

TEST(Buddy, TakesAPowerOfTwo) {
  const auto allocator = MakeBuddy(1024);
  EXPECT_EQ(Taken(*allocator, 129).pages, 256U);
  EXPECT_EQ(Taken(*allocator, 512).first, 512U);
  EXPECT_EQ(Taken(*allocator, 1).first, 256U);
}

TEST(SegregatedFit, TakesOnlyFromAClassWhoseRangesAllFit) {
  const auto allocator = MakeSegregatedFit(130);
  (void)Taken(*allocator, 1);  // 129 pages are left, in the class from 128 to 131.
  Place place;
  EXPECT_FALSE(allocator->TryAllocate(129, &place));  // Rounded up to the class from 132 on.
  EXPECT_TRUE(allocator->TryAllocate(128, &place));
}

TEST(Pool, ATailTakesPagesOrAWholeBlock) {
  const auto slots = MakePool(4 * 512, /*tails=*/true);
  const auto blocks = MakePool(4 * 512, /*tails=*/false);
  EXPECT_EQ(Taken(*slots, 520).pages, 520U);
  EXPECT_EQ(Taken(*blocks, 520).pages, 1024U);
  EXPECT_EQ(slots->held_pages(), 1024U);  // The slot's block serves no whole block.
}

TEST(Trace, IsTheSameForASeedAndKeepsItsPeak) {
  const TraceOptions options{.seed = 5, .events = 60'000, .peak_bytes = uint64_t{64} << 30, .jobs = 5};
  Trace one(options);
  Trace other(options);
  std::map<uint64_t, Event> live;
  std::map<uint32_t, uint64_t> of_jobs;
  std::set<uint32_t> ended;
  uint64_t bytes = 0;
  uint64_t count = 0;
  Event event;
  Event same;
  while (one.Next(&event)) {
    ASSERT_TRUE(other.Next(&same));
    ASSERT_TRUE(event.tensor == same.tensor && event.bytes == same.bytes);
    if (event.bytes != 0) {
      ASSERT_FALSE(ended.contains(event.job));
      ASSERT_TRUE(live.emplace(event.tensor, event).second);
      bytes += event.bytes;
      of_jobs[event.job] += event.bytes;
    } else {
      const auto found = live.find(event.tensor);
      ASSERT_NE(found, live.end());
      ASSERT_EQ(found->second.job, event.job);
      bytes -= found->second.bytes;
      of_jobs[event.job] -= found->second.bytes;
      live.erase(found);
    }
    if (event.ends_job) {
      ASSERT_EQ(of_jobs[event.job], 0U);
      ended.insert(event.job);
    }
    ASSERT_LE(bytes, options.peak_bytes);
    ASSERT_LE(of_jobs[event.job], options.peak_bytes / 100 * options.job_percent);
    ++count;
  }
  EXPECT_FALSE(other.Next(&same));
  EXPECT_EQ(count, options.events);
  EXPECT_FALSE(ended.empty());
}

constexpr TraceOptions kSlice = {.seed = 3, .events = 4'000, .peak_bytes = 16 * kGiB, .jobs = 5};

void ExpectKept(const EngineOutcome& outcome) {
  EXPECT_EQ(outcome.refused, 0U) << outcome.refusal;
  EXPECT_EQ(outcome.unreadable, 0U);
  EXPECT_GT(outcome.created, 2'000U);
  EXPECT_GT(outcome.read, 400U);
}

TEST(EngineRun, InRamAloneNothingIsRefusedAndNothingLeaves) {
  const EngineOutcome outcome =
      RunEngine(kSlice, {.arena_bytes = 20 * kGiB, .devices = {}, .events_for_a_check = 1'000});
  ExpectKept(outcome);
  EXPECT_GT(outcome.used_below, 0);
  EXPECT_LE(outcome.used_below, 1.01);
  EXPECT_EQ(outcome.evicted_bytes, 0U);
}

// Its free pages lie scattered, and moves bring them together while writes fail for want of an SSD device.
TEST(EngineRun, ARequestWaitsForMovesWhereNoWriteCanMakeRoom) {
  const TraceOptions trace{.seed = 1, .events = 20'000, .peak_bytes = 16 * kGiB, .jobs = 5, .odd_sizes = true};
  const EngineOutcome outcome = RunEngine(trace, {.arena_bytes = 20 * kGiB, .devices = {}});
  EXPECT_EQ(outcome.refused, 0U) << outcome.refusal;
  EXPECT_GT(outcome.moved_bytes, 0U);
}

// Jobs have nearly all that they are promised, and no move packs their slots closer.
TEST(EngineRun, WhatNoMovePacksIsNotTakenFromAPromise) {
  const TraceOptions trace{.seed = 4, .events = 20'000, .peak_bytes = 16 * kGiB, .jobs = 5};
  const EngineOutcome outcome = RunEngine(trace, {.arena_bytes = 16 * kGiB / 100 * 118, .devices = {}});
  EXPECT_EQ(outcome.refused, 0U) << outcome.refusal;
}

// Each of five jobs fills its part of an arena of which a sixteenth is promised to none.
TEST(EngineRun, AJobMayFillItsPartHoweverFullTheOthersAre) {
  const TraceOptions trace{.seed = 1, .events = 30'000, .peak_bytes = 16 * kGiB, .jobs = 5, .job_percent = 20};
  const EngineOutcome outcome = RunEngine(trace, {.arena_bytes = 16 * kGiB / 100 * 107, .devices = {}});
  EXPECT_EQ(outcome.refused, 0U) << outcome.refusal;
  EXPECT_GT(outcome.windows_at_peak, 1.0);
  EXPECT_LE(outcome.windows_at_peak, 1.02);  // In so short a trace the peak is not quite reached.
}

TEST(EngineRun, WithSsdNothingIsRefusedAndWhatLeavesRamIsReadAgain) {
  const EngineOutcome outcome =
      RunEngine(kSlice, {.arena_bytes = 8 * kGiB, .devices = {4'300, 4'300}, .events_for_a_check = 1'000});
  ExpectKept(outcome);
  EXPECT_GT(outcome.used_below, 0);
  EXPECT_LE(outcome.used_below, 1.01);
  EXPECT_GT(outcome.evicted_bytes, 0U);
  EXPECT_GT(outcome.read_bytes, 0U);
}

TEST(EngineRun, CountsWhatIsRefused) {
  const EngineOutcome outcome = RunEngine(kSlice, {.arena_bytes = 8 * kGiB, .devices = {}});
  EXPECT_GT(outcome.refused, 0U);
  EXPECT_NE(outcome.refusal, "");
  EXPECT_EQ(outcome.unreadable, 0U);
}

std::vector<storage::TransferResult> Ended(MarkedTransfers& transfers, const storage::Transfer& transfer) {
  transfers.Start(transfer);
  std::vector<storage::TransferResult> results;
  transfers.Poll(&results);
  return results;
}

TEST(MarkedTransfers, AReadFindsTheWriteThatItNamesAndNoOther) {
  MarkedTransfers transfers({2});
  storage::Transfer transfer{.direction = storage::Direction::kWrite,
                             .extent = {.run = {.block = 1, .page = 8, .pages = 4}},
                             .length = 3 * kPageSize + 1};
  const uint32_t mark = Ended(transfers, transfer).at(0).crc;
  transfer.direction = storage::Direction::kRead;
  transfer.crc = mark;
  EXPECT_EQ(Ended(transfers, transfer).at(0).outcome, storage::TransferOutcome::kDone);
  // Another write takes one of the pages.
  (void)Ended(transfers, {.extent = {.run = {.block = 1, .page = 11, .pages = 1}}, .length = 1});
  const storage::TransferResult result = Ended(transfers, transfer).at(0);
  EXPECT_EQ(result.outcome, storage::TransferOutcome::kCorrupt);
  EXPECT_NE(result.crc, mark);
}

}  // namespace
}  // namespace tier::churn
