// WindowOrder: ranks follow sizes and pages in use, and random changes leave the order that a sorted list has.
#include "daemon/tiering/tables/window_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tier::tiering {
namespace {

std::vector<uint32_t> Listed(const WindowOrder& order, JobIndex job, uint32_t first = 0,
                             uint32_t end = WindowOrder::kRanks) {
  std::vector<uint32_t> windows;
  order.ForEach(job, first, end, [&](WindowIndex window) {
    windows.push_back(tier::Value(window));
    return true;
  });
  return windows;
}

TEST(WindowOrder, FewerPagesNeverHaveALaterRank) {
  uint32_t before = 0;
  for (uint32_t pages = 1; pages <= kWindowSizeMax / kPageSize; ++pages) {
    const uint32_t rank = WindowOrder::RankOfUsed(pages, false);
    ASSERT_GE(rank, before) << pages;
    ASSERT_LT(WindowOrder::RankOfUsed(pages, true), WindowOrder::kRanks);
    ASSERT_TRUE(!WindowOrder::IsDirty(rank) && WindowOrder::IsDirty(WindowOrder::RankOfUsed(pages, true)));
    before = rank;
  }
}

TEST(WindowOrder, AStepIsAtMostAnEighthOfThePages) {
  uint32_t first = 1;  // Of the step.
  for (uint32_t pages = 2; pages <= kWindowSizeMax / kPageSize; ++pages) {
    if (WindowOrder::RankOfUsed(pages, false) != WindowOrder::RankOfUsed(first, false)) first = pages;
    ASSERT_LE(8 * (pages - first), first);
    ASSERT_TRUE(pages > 16 || first == pages);
  }
}

TEST(WindowOrder, EmptyWindowsComeFirstTheSmallOnesBeforeTheLarge) {
  uint32_t before = 0;
  for (uint64_t size = kBlockSize; size <= kWindowSizeMax; size *= 2) {
    EXPECT_EQ(WindowOrder::RankOfEmpty(size), before++);
    EXPECT_LT(WindowOrder::RankOfEmpty(size), WindowOrder::kFirstUsed);
  }
}

TEST(WindowOrder, AVisitorMayTakeEachWindowOut) {
  WindowOrder order(8);
  for (uint32_t i = 0; i < 8; ++i) order.Set(JobIndex{0}, WindowIndex{i}, 20 + i % 2);
  uint32_t seen = 0;
  order.ForEach(JobIndex{0}, 0, WindowOrder::kRanks, [&](WindowIndex window) {
    order.Set(JobIndex{0}, window, WindowOrder::kNone);
    ++seen;
    return true;
  });
  EXPECT_EQ(seen, 8U);
  EXPECT_TRUE(Listed(order, JobIndex{0}).empty());
  order.CheckInvariants();
}

TEST(WindowOrder, KeepsTheOrderOfARandomHistory) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  constexpr uint32_t kWindows = 40;
  WindowOrder order(kWindows);
  std::map<uint32_t, uint32_t> ranks;  // By window; windows of job n: numbers that leave n when divided by 3.
  for (int step = 0; step < 5000; ++step) {
    const uint32_t window = below(kWindows);
    const uint32_t rank = below(4) == 0 ? WindowOrder::kNone : below(WindowOrder::kRanks);
    order.Set(JobIndex{window % 3}, WindowIndex{window}, rank);
    ranks[window] = rank;
    if (step % 50 != 0) continue;
    order.CheckInvariants();
    for (uint32_t job = 0; job < 3; ++job) {
      const uint32_t first = below(WindowOrder::kRanks);
      const uint32_t end = first + below(WindowOrder::kRanks);
      std::multimap<uint32_t, uint32_t> expected;
      for (const auto& [each, its] : ranks) {
        if (each % 3 == job && its >= first && its < end) expected.emplace(its, each);
      }
      const std::vector<uint32_t> listed = Listed(order, JobIndex{job}, first, end);
      ASSERT_EQ(listed.size(), expected.size());
      for (auto at = expected.begin(); const uint32_t each : listed) ASSERT_EQ(ranks.at(each), (at++)->first);
    }
  }
  EXPECT_TRUE(Listed(order, JobIndex{9}).empty()) << "a job that never had a window";
}

}  // namespace
}  // namespace tier::tiering
