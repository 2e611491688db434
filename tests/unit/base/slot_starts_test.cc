#include "daemon/base/slot_starts.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace tier::base {
namespace {

std::set<unsigned> ListOf(const SlotStarts& starts, const PageMapPool& maps) {
  std::set<unsigned> pages;
  for (unsigned page = starts.Next(0, maps); page < kPagesPerBlock; page = starts.Next(page + 1, maps))
    pages.insert(page);
  return pages;
}

TEST(SlotStarts, FewAreListedAndManyAreAMap) {
  PageMapPool maps;
  SlotStarts starts;
  std::set<unsigned> model;
  for (unsigned i = 0; i < SlotStarts::kListedMax; ++i) {
    starts.Add(511 - 70 * i, &maps);
    model.insert(511 - 70 * i);
    EXPECT_FALSE(starts.has_map()) << i;
    EXPECT_EQ(ListOf(starts, maps), model);
  }
  starts.Add(0, &maps);
  model.insert(0);
  EXPECT_TRUE(starts.has_map());
  EXPECT_EQ(maps.used(), 1U);
  EXPECT_EQ(ListOf(starts, maps), model);
  while (model.size() > SlotStarts::kListedAgain + 1) {
    starts.Remove(*model.begin(), &maps);
    model.erase(model.begin());
    EXPECT_TRUE(starts.has_map()) << model.size();
    EXPECT_EQ(ListOf(starts, maps), model);
  }
  starts.Remove(*model.begin(), &maps);
  model.erase(model.begin());
  EXPECT_FALSE(starts.has_map());
  EXPECT_EQ(maps.used(), 0U);
  EXPECT_EQ(ListOf(starts, maps), model);
}

TEST(SlotStarts, AMapThatWasFreedIsEmptyForTheNext) {
  PageMapPool maps;
  SlotStarts first;
  for (unsigned page = 0; page < 20; ++page) first.Add(page, &maps);
  for (unsigned page = 0; page < 20; ++page) first.Remove(page, &maps);
  EXPECT_EQ(first.Next(0, maps), kPagesPerBlock);
  SlotStarts second;
  for (unsigned page = 100; page < 110; ++page) second.Add(page, &maps);
  EXPECT_EQ(second.Next(0, maps), 100U);
  EXPECT_FALSE(second.Contains(99, maps) || second.Contains(110, maps));
}

TEST(SlotStarts, OverAnyHistoryTheyAreThoseOfTheModel) {
  std::mt19937 random(20261128);
  PageMapPool maps;
  std::vector<SlotStarts> blocks(40);
  std::vector<std::set<unsigned>> models(blocks.size());
  for (int step = 0; step < 100'000; ++step) {
    const size_t block = random() % blocks.size();
    const unsigned page = random() % 16 * (kPagesPerBlock / 16);
    const bool there = models[block].contains(page);
    ASSERT_EQ(blocks[block].Contains(page, maps), there) << step;
    if (there) {
      blocks[block].Remove(page, &maps);
      models[block].erase(page);
    } else if (random() % 3 != 0) {
      blocks[block].Add(page, &maps);
      models[block].insert(page);
    }
    ASSERT_EQ(ListOf(blocks[block], maps), models[block]) << step;
    ASSERT_LE(maps.used(), blocks.size());
  }
}

}  // namespace
}  // namespace tier::base
