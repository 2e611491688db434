#include "daemon/memory/place_allocator.h"

#include <gtest/gtest.h>

namespace tier::memory {
namespace {

constexpr uint64_t kSmall = 2 * kMiB;
constexpr uint64_t kLarge = 8 * kMiB;

TEST(PlaceAllocator, NeighboursLieSideBySideFromTheStart) {
  PlaceAllocator places(8 * kLarge, kLarge);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(places.TryTake(kLarge), i * kLarge);
  EXPECT_EQ(places.TryTake(kLarge), std::nullopt);
  EXPECT_EQ(places.taken_bytes(), places.space_bytes());
}

TEST(PlaceAllocator, SmallWindowsShareARangeOfALargeOne) {
  PlaceAllocator places(4 * kLarge, kLarge);
  EXPECT_EQ(places.TryTake(kLarge), 0U);
  EXPECT_EQ(places.TryTake(kSmall), kLarge);
  EXPECT_EQ(places.TryTake(kLarge), 2 * kLarge);
  EXPECT_EQ(places.TryTake(2 * kSmall), kLarge + 2 * kSmall) << "at a multiple of its size";
  EXPECT_EQ(places.TryTake(kSmall), kLarge + kSmall);
  EXPECT_EQ(places.TryTake(kSmall), 3 * kLarge);
  places.CheckInvariants();
}

TEST(PlaceAllocator, APlaceThatIsFreeAgainIsJoinedWithItsNeighbours) {
  PlaceAllocator places(kLarge, kLarge);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(places.TryTake(kSmall));
  EXPECT_EQ(places.TryTake(kLarge), std::nullopt);
  for (const uint64_t i : {2, 0, 3, 1}) {
    places.Free(i * kSmall, kSmall);
    places.CheckInvariants();
  }
  EXPECT_EQ(places.TryTake(kLarge), 0U);
}

// The worst that two sizes can do: an arena full of small windows, of which one is left in each range of a large one.
TEST(PlaceAllocator, ScatteredSmallWindowsLeaveRoomForAllLargeOnesThatFitTheArena) {
  constexpr uint64_t kArena = 16 * kLarge;
  PlaceAllocator places(2 * kArena, kLarge);
  for (uint64_t at = 0; at < kArena; at += kSmall) ASSERT_EQ(places.TryTake(kSmall), at);
  for (uint64_t at = 0; at < kArena; at += kSmall) {
    if (at % kLarge != 0) places.Free(at, kSmall);
  }
  for (uint64_t taken = 16 * kSmall; taken + kLarge <= kArena; taken += kLarge) ASSERT_TRUE(places.TryTake(kLarge));
  places.CheckInvariants();
}

TEST(PlaceAllocatorDeathTest, RefusesWhatOnlyABugCouldAsk) {
  PlaceAllocator places(2 * kLarge, kLarge);
  ASSERT_EQ(places.TryTake(kLarge), 0U);
  EXPECT_DEATH((void)places.TryTake(2 * kLarge), "CHECK failed");
  EXPECT_DEATH((void)places.TryTake(3 * kMiB), "CHECK failed");
  EXPECT_DEATH(places.Free(kSmall, kLarge), "no window of 8388608 bytes lies at 2097152");
  EXPECT_DEATH(places.Free(0, 3 * kMiB), "CHECK failed");
  EXPECT_DEATH(places.Free(kLarge, kLarge), "no window of") << "nothing was taken there";
  EXPECT_DEATH(places.Free(kLarge, kSmall), "no window of") << "nor of a part of it";
  places.Free(0, kLarge);
  EXPECT_DEATH(places.Free(0, kLarge), "no window of");
  EXPECT_DEATH(places.Free(2 * kSmall, kSmall), "no window of");
  EXPECT_DEATH(PlaceAllocator(kLarge + kSmall, kLarge), "CHECK failed");
}

}  // namespace
}  // namespace tier::memory
