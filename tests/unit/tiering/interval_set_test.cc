#include "daemon/tiering/tables/interval_set.h"

#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

using Interval = IntervalSet::Interval;

TEST(IntervalSet, NothingIsCoveredAtFirst) {
  const IntervalSet set;
  EXPECT_FALSE(set.Covers(0, 1));
  EXPECT_TRUE(set.intervals().empty());
}

TEST(IntervalSet, CoversWhatWasAddedAndNoByteMore) {
  IntervalSet set;
  set.Add(10, 20);
  EXPECT_TRUE(set.Covers(10, 20));
  EXPECT_TRUE(set.Covers(12, 13));
  EXPECT_FALSE(set.Covers(9, 20));
  EXPECT_FALSE(set.Covers(10, 21));
}

TEST(IntervalSet, NeighboursBecomeOne) {
  IntervalSet set;
  set.Add(0, 10);
  set.Add(20, 30);
  EXPECT_EQ(set.intervals().size(), 2u);
  EXPECT_FALSE(set.Covers(0, 30));
  set.Add(10, 20);
  EXPECT_EQ(set.intervals(), (std::vector<Interval>{{0, 30}}));
}

TEST(IntervalSet, AnOverlapSwallowsEverythingItMeets) {
  IntervalSet set;
  for (uint64_t i = 0; i < 10; ++i) set.Add(i * 10, i * 10 + 5);
  set.Add(12, 83);
  EXPECT_EQ(set.intervals(), (std::vector<Interval>{{0, 5}, {10, 85}, {90, 95}}));
}

TEST(IntervalSet, AddingTwiceChangesNothing) {
  IntervalSet set;
  set.Add(5, 9);
  set.Add(5, 9);
  set.Add(6, 8);
  EXPECT_EQ(set.intervals(), (std::vector<Interval>{{5, 9}}));
}

TEST(IntervalSet, AnyOrderOfPiecesEndsInOneInterval) {
  IntervalSet set;
  for (uint64_t i = 0; i < 97; ++i) {
    const uint64_t at = i * 31 % 97;
    set.Add(at * 4, at * 4 + 4);
  }
  EXPECT_EQ(set.intervals(), (std::vector<Interval>{{0, 97 * 4}}));
}

TEST(IntervalSet, TellsHowManyRangesItMoved) {
  IntervalSet set;
  for (uint64_t i = 10; i != 0; --i) EXPECT_EQ(set.Add(i * 10, i * 10 + 5), 10 - i);
  EXPECT_EQ(set.Add(200, 205), 0u) << "behind all of them";
  EXPECT_EQ(set.Add(15, 18), 0u) << "one of them grows";
  EXPECT_EQ(set.Add(25, 40), 7u) << "three become one";
}

TEST(IntervalSet, ARangeTouchesWhatItOverlapsOrAdjoins) {
  IntervalSet set;
  set.Add(10, 20);
  set.Add(30, 40);
  EXPECT_TRUE(set.Touches(20, 25));
  EXPECT_TRUE(set.Touches(25, 30));
  EXPECT_TRUE(set.Touches(0, 100));
  EXPECT_FALSE(set.Touches(21, 29));
  EXPECT_FALSE(set.Touches(41, 50));
  EXPECT_FALSE(set.Touches(0, 9));
}

}  // namespace
}  // namespace tier::tiering
