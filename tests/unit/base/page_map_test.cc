#include "daemon/base/page_map.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

TEST(PageMap, RangesAcrossWordsAreSetAndClearedExactly) {
  PageMap map;
  map.Set(60, 140);
  EXPECT_FALSE(map.Test(59));
  EXPECT_TRUE(map.AllSet(60, 140));
  EXPECT_FALSE(map.Test(200));
  EXPECT_EQ(map.CountSet(), 140U);
  map.Clear(64, 64);
  EXPECT_TRUE(map.NoneSet(64, 64));
  EXPECT_TRUE(map.Test(63));
  EXPECT_TRUE(map.Test(128));
}

TEST(PageMap, WholeBlockIsOneRange) {
  PageMap map;
  map.Set(0, PageMap::kPages);
  EXPECT_TRUE(map.AllSet(0, PageMap::kPages));
  EXPECT_EQ(map.NextClear(0), PageMap::kPages);
  EXPECT_EQ(map.LongestHole(), 0U);
  map.Clear(0, PageMap::kPages);
  EXPECT_EQ(map.LongestHole(), PageMap::kPages);
}

TEST(PageMap, NextAndHoleStartFindTheNeighbours) {
  PageMap map;
  map.Set(10, 1);
  map.Set(300, 2);
  EXPECT_EQ(map.NextSet(0), 10U);
  EXPECT_EQ(map.NextSet(11), 300U);
  EXPECT_EQ(map.NextSet(302), PageMap::kPages);
  EXPECT_EQ(map.NextClear(300), 302U);
  EXPECT_EQ(map.HoleStart(200), 11U);
  EXPECT_EQ(map.HoleStart(PageMap::kPages), 302U);
  EXPECT_EQ(map.HoleStart(10), 0U);
  EXPECT_EQ(map.HoleStart(0), 0U);
  EXPECT_EQ(map.HoleStart(302), 302U);
}

TEST(PageMap, BestHoleIsTheSmallestThatFitsAndTheLowestOfEquals) {
  PageMap map;
  map.Set(0, PageMap::kPages);
  map.Clear(10, 8);
  map.Clear(100, 5);
  map.Clear(200, 5);
  map.Clear(400, 40);
  EXPECT_EQ(map.BestHole(5).page, 100U);
  EXPECT_EQ(map.BestHole(4).page, 100U);
  EXPECT_EQ(map.BestHole(6).page, 10U);
  EXPECT_EQ(map.BestHole(9).page, 400U);
  EXPECT_EQ(map.BestHole(41).pages, 0U);
  EXPECT_EQ(map.LongestHole(), 40U);
  EXPECT_GE(map.LongestHole(5), 5U);
}

}  // namespace
}  // namespace tier::base
