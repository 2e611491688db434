#include "daemon/base/slot_pages.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kBlock = 3;

class SlotPagesTest : public ::testing::Test {
 protected:
  std::vector<PageRun> List() const {
    slots.CheckInvariants(maps);
    std::vector<PageRun> runs;
    slots.List(kBlock, maps, &runs);
    return runs;
  }
  void AddMany(unsigned count) {  // Slots of 2 pages, with holes of 3 between them.
    for (unsigned i = 0; i < count; ++i) slots.Add(5 * i, 2, &maps);
  }

  SlotMapsPool maps;
  SlotPages slots;
};

TEST_F(SlotPagesTest, SlotsAreListedInTheOrderOfTheirPages) {
  slots.Add(300, 12, &maps);
  slots.Add(0, 1, &maps);
  slots.Add(312, 200, &maps);
  slots.Add(100, 50, &maps);
  EXPECT_EQ(List(), (std::vector<PageRun>{{kBlock, 0, 1}, {kBlock, 100, 50}, {kBlock, 300, 12}, {kBlock, 312, 200}}));
  slots.Remove(100, 50, &maps);
  slots.Remove(312, 200, &maps);
  EXPECT_EQ(List(), (std::vector<PageRun>{{kBlock, 0, 1}, {kBlock, 300, 12}}));
  EXPECT_EQ(maps.used(), 0U);
}

TEST_F(SlotPagesTest, ManySlotsAreInMapsUntilThereAreClearlyFewer) {
  AddMany(SlotPages::kListedMax);
  EXPECT_FALSE(slots.has_maps());
  const std::vector<PageRun> before = List();
  slots.Add(400, 7, &maps);
  EXPECT_TRUE(slots.has_maps());
  EXPECT_EQ(maps.used(), 1U);
  slots.Remove(400, 7, &maps);
  EXPECT_TRUE(slots.has_maps()) << "one that goes up and down by a slot stays as it is";
  EXPECT_EQ(List(), before);
  while (slots.count() > SlotPages::kListedAgain) slots.Remove(5 * (slots.count() - 1), 2, &maps);
  EXPECT_FALSE(slots.has_maps());
  EXPECT_EQ(maps.used(), 0U);
  EXPECT_EQ(List(), std::vector<PageRun>(before.begin(), before.begin() + SlotPages::kListedAgain));
}

TEST_F(SlotPagesTest, MapsThatWereFreedAreEmptyForTheNext) {
  AddMany(20);
  for (unsigned i = 0; i < 20; ++i) slots.Remove(5 * i, 2, &maps);
  EXPECT_EQ(slots.HoleAt(0, maps).pages, kPagesPerBlock);
  for (unsigned page = 200; page < 230; page += 2) slots.Add(page, 2, &maps);
  EXPECT_TRUE(slots.has_maps());
  EXPECT_EQ(slots.HoleAt(0, maps).pages, 200U);
  EXPECT_EQ(slots.HoleAt(511, maps).page, 230U);
  EXPECT_EQ(List().size(), 15U);
}

TEST_F(SlotPagesTest, FindsTheSmallestHoleThatFitsAndTheLowestOfEquals) {
  slots.Add(20, 10, &maps);  // Holes of 20, 10, 10 and 452.
  slots.Add(40, 10, &maps);
  slots.Add(60, 1, &maps);
  EXPECT_EQ(slots.BestHole(5, maps).page, 30U);
  EXPECT_EQ(slots.BestHole(10, maps).page, 30U);
  EXPECT_EQ(slots.BestHole(11, maps).page, 0U);
  EXPECT_EQ(slots.BestHole(21, maps).page, 61U);
  EXPECT_EQ(slots.BestHole(451, maps).pages, 451U);
  EXPECT_EQ(slots.BestHole(452, maps).pages, 0U);
  EXPECT_EQ(slots.LongestHole(maps), 451U);
  EXPECT_EQ(slots.LongestHole(maps, 10), 20U) << "the first that is enough";
}

TEST_F(SlotPagesTest, AFullBlockHasNoHoles) {
  slots.Add(0, 511, &maps);
  slots.Add(511, 1, &maps);
  EXPECT_EQ(slots.LongestHole(maps), 0U);
  EXPECT_EQ(slots.BestHole(1, maps).pages, 0U);
  EXPECT_EQ(slots.HoleAt(0, maps).pages, 0U);
  EXPECT_EQ(slots.HoleAt(511, maps).pages, 0U);
  EXPECT_TRUE(slots.Holds(0, 511, maps) && slots.Holds(511, 1, maps));
  EXPECT_FALSE(slots.Holds(0, 510, maps) || slots.Holds(1, 510, maps));
}

TEST_F(SlotPagesTest, ASplitOfTheLastListedSlotMovesThemToMaps) {
  AddMany(SlotPages::kListedMax - 1);
  slots.Add(100, 100, &maps);
  slots.Split(100, 30, &maps);
  EXPECT_TRUE(slots.has_maps());
  EXPECT_TRUE(slots.Holds(100, 30, maps) && slots.Holds(130, 70, maps));
  EXPECT_FALSE(slots.Holds(100, 100, maps));
  slots.Split(130, 1, &maps);
  EXPECT_TRUE(slots.Holds(130, 1, maps) && slots.Holds(131, 69, maps));
  EXPECT_EQ(List().size(), SlotPages::kListedMax + 2U);
}

using SlotPagesDeathTest = SlotPagesTest;

TEST_F(SlotPagesDeathTest, PagesAreUsedOnceAndSlotsAreRemovedAsTheyWereAdded) {
  slots.Add(10, 10, &maps);
  EXPECT_DEATH(slots.Add(19, 1, &maps), "not free");
  EXPECT_DEATH(slots.Add(5, 6, &maps), "not free");
  EXPECT_DEATH(slots.Add(500, 13, &maps), "page 500 pages 13");
  EXPECT_DEATH(slots.Remove(11, 9, &maps), "no such slot");
  EXPECT_DEATH(slots.Remove(10, 9, &maps), "no such slot");
  EXPECT_DEATH(slots.Split(10, 10, &maps), "no such slot");
}

}  // namespace
}  // namespace tier::base
