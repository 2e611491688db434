#include "daemon/base/free_block_map.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kNone = FreeBlockMap::kNone;

TEST(FreeBlockMap, IsEmptyBeforeTheFirstMember) {
  FreeBlockMap map;
  EXPECT_EQ(map.longest_run(), 0U);
  EXPECT_EQ(map.FindAtOrAfter(0), kNone);
  EXPECT_EQ(map.FindRun(1), kNone);
  EXPECT_FALSE(map.IsMember(0));
  EXPECT_FALSE(map.AnyMember(0, 100));
  map.CheckInvariants();
}

TEST(FreeBlockMap, FindsRunsThatCrossWordsAndTreeNodes) {
  FreeBlockMap map;
  map.AddMembers(0, 1000);
  map.MarkUsed(0, 60);
  map.MarkUsed(200, 1);
  EXPECT_EQ(map.FindRun(140), 60U);
  EXPECT_EQ(map.FindRun(141), 201U);
  EXPECT_EQ(map.longest_run(), 799U);
  EXPECT_EQ(map.FindRun(800), kNone);
  map.CheckInvariants();
}

TEST(FreeBlockMap, FindsRunsInsideOneWord) {
  FreeBlockMap map;
  map.AddMembers(64, 64);
  map.MarkUsed(64, 3);
  map.MarkUsed(70, 1);
  map.MarkUsed(81, 40);
  EXPECT_EQ(map.FindRun(3), 67U);
  EXPECT_EQ(map.FindRun(4), 71U);
  EXPECT_EQ(map.FindRun(10), 71U);
  EXPECT_EQ(map.FindRun(11), kNone);
  EXPECT_EQ(map.longest_run(), 10U);
  map.CheckInvariants();
}

TEST(FreeBlockMap, FindAtOrAfterClimbsToTheNextFreeBlock) {
  FreeBlockMap map;
  map.AddMembers(0, 4096);
  map.MarkUsed(0, 4096);
  map.MarkFree(5);
  map.MarkFree(3000);
  EXPECT_EQ(map.FindAtOrAfter(0), 5U);
  EXPECT_EQ(map.FindAtOrAfter(5), 5U);
  EXPECT_EQ(map.FindAtOrAfter(6), 3000U);
  EXPECT_EQ(map.FindAtOrAfter(3001), kNone);
  EXPECT_EQ(map.FindAtOrAfter(1U << 30), kNone);
}

TEST(FreeBlockMap, MembersMayBeSparseAndGrowLater) {
  FreeBlockMap map;
  map.AddMembers(512, 512);
  map.AddMembers(100'000, 512);
  EXPECT_EQ(map.free_count(), 1024U);
  EXPECT_EQ(map.FindAtOrAfter(1024), 100'000U);
  EXPECT_EQ(map.FindRun(513), kNone);
  map.AddMembers(1024, 1);
  EXPECT_EQ(map.FindRun(513), 512U);
  map.RemoveMembers(512, 512);
  EXPECT_EQ(map.FindAtOrAfter(0), 1024U);
  EXPECT_FALSE(map.IsMember(512));
  map.CheckInvariants();
}

// The tree becomes higher with the first member far off, and what it had below stays as it was.
TEST(FreeBlockMap, MembersMayLieAnywhereBelowTheLimit) {
  constexpr uint32_t kEnd = UINT32_MAX / 2;
  FreeBlockMap map;
  map.AddMembers(10, 5);
  for (const uint32_t first : {64U, 512U, 4096U, 1U << 20, 1U << 30, kEnd - 3}) {
    map.AddMembers(first, 3);
    map.CheckInvariants();
    EXPECT_EQ(map.longest_run(), 5U);
    EXPECT_EQ(map.FindRun(5), 10U);
    EXPECT_EQ(map.FindAtOrAfter(first - 1), first);
    EXPECT_EQ(map.FindAtOrAfter(first + 3), kNone);
    EXPECT_FALSE(map.AllFree(first, 4));
  }
  map.MarkUsed(12, 1);
  EXPECT_EQ(map.FindRun(3), 64U);
  map.RemoveMembers(64, 3);
  EXPECT_EQ(map.FindRun(3), 512U);
  EXPECT_FALSE(map.IsMember(64));
  EXPECT_FALSE(map.IsMember(UINT32_MAX));
  map.CheckInvariants();
}

// Nodes and leaves of members that went are used for those that come.
TEST(FreeBlockMap, WithoutMembersNothingOfTheTreeIsLeft) {
  FreeBlockMap map;
  for (uint32_t first = 1000; first < 2'000'000'000; first *= 7) {
    map.AddMembers(first, 300);
    map.RemoveMembers(first, 300);
    map.CheckInvariants();
    EXPECT_EQ(map.member_count(), 0U);
    EXPECT_EQ(map.longest_run(), 0U);
    EXPECT_EQ(map.FindAtOrAfter(0), kNone);
    EXPECT_FALSE(map.AnyMember(0, first + 300));
  }
  map.AddMembers(0, 1);
  EXPECT_EQ(map.FindRun(1), 0U);
}

TEST(FreeBlockMapDeathTest, RefusesWhatOnlyABugCouldAsk) {
  FreeBlockMap map;
  map.AddMembers(0, 8);
  EXPECT_DEATH(map.AddMembers(7, 2), "CHECK failed");
  EXPECT_DEATH(map.MarkFree(3), "CHECK failed");
  map.MarkUsed(3, 1);
  EXPECT_DEATH(map.MarkUsed(2, 2), "CHECK failed");
  EXPECT_DEATH(map.RemoveMembers(0, 8), "CHECK failed");
  EXPECT_DEATH(map.MarkFree(64), "CHECK failed");
  EXPECT_DEATH(map.MarkUsed(UINT32_MAX, 2), "CHECK failed");
}

}  // namespace
}  // namespace tier::base
