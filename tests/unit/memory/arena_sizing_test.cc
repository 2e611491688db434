#include "daemon/memory/arena_sizing.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::memory {
namespace {

HostReading Host(uint64_t total, uint64_t cgroup_limit = kUnlimited) {
  HostReading host{.memory_total = total, .memory_available = total};
  host.cgroup.limit = cgroup_limit;
  return host;
}

std::string Refusal(const ArenaRequest& request, const HostReading& host) {
  const auto sizes = ArenaSizing(request, host);
  if (sizes) return "";
  EXPECT_EQ(sizes.error().code, Code::kInvalid);
  return sizes.error().message;
}

TEST(ArenaSizing, TakesAQuarterOfTheMachine) {
  const auto sizes = ArenaSizing({}, Host(64 * kGiB));
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->max_bytes, 16 * kGiB);
  EXPECT_EQ(sizes->window_size_min, 2 * kMiB);
  EXPECT_EQ(sizes->window_size_max, 8 * kMiB);
  EXPECT_EQ(sizes->windows_aimed, 8192U) << "of 2 MiB";
  EXPECT_EQ(sizes->windows_max, 8192U + 1024) << "and an eighth more";
  EXPECT_EQ(sizes->host_reserve_bytes, 4 * kGiB);
  EXPECT_EQ(sizes->usable_bytes, 60 * kGiB);
}

TEST(ArenaSizing, TakesAQuarterOfTheCgroupLimitWhereThatIsLess) {
  EXPECT_EQ(ArenaSizing({}, Host(64 * kGiB, 2 * kGiB))->max_bytes, 512 * kMiB);
}

TEST(ArenaSizing, KeepsAMinimumThatTheMaximumCovers) {
  EXPECT_EQ(ArenaSizing({.min_bytes = 3 * kMiB}, Host(64 * kGiB))->min_bytes, 3 * kMiB);
  EXPECT_NE(Refusal({.max_bytes = kGiB, .min_bytes = kGiB + 1}, Host(64 * kGiB)).find("lower arena.minimum"),
            std::string::npos);
}

TEST(ArenaSizing, SaysWhetherTheReserveWasSet) {
  EXPECT_TRUE(ArenaSizing({}, Host(64 * kGiB))->reserve_is_derived);
  EXPECT_FALSE(ArenaSizing({.host_reserve_bytes = kGiB}, Host(64 * kGiB))->reserve_is_derived);
}

TEST(ArenaSizing, WindowsAreAPowerOfTwoWithinTheirBounds) {
  EXPECT_EQ(ArenaSizing({}, Host(23 * kGiB))->window_size_max, 2 * kMiB);
  EXPECT_EQ(ArenaSizing({}, Host(24 * kGiB))->max_bytes, 6 * kGiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 28 * kGiB}, Host(64 * kGiB))->window_size_max, 8 * kMiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 1024 * kGiB}, Host(2048 * kGiB))->window_size_max, 512 * kMiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 9000 * kGiB}, Host(16384 * kGiB))->window_size_max, kGiB);
}

TEST(ArenaSizing, RoundsTheMaximumDownToWholeWindows) {
  const auto sizes = ArenaSizing({.max_bytes = 100 * kMiB + 1, .window_bytes = 8 * kMiB}, Host(8 * kGiB));
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->max_bytes, 96 * kMiB);
  EXPECT_EQ(sizes->windows_max, 48U + 16);
}

ArenaSizes SizesOf(uint64_t max_bytes, uint64_t window_bytes = 0) {
  return ArenaSizing({.max_bytes = max_bytes, .window_bytes = window_bytes}, Host(32768 * kGiB)).value();
}

TEST(ArenaSizing, AnArenaOfAnySizeHasIndicesForItselfInTheLargestWindows) {
  for (const uint64_t gib : {1, 16, 17, 64, 512, 600, 4096, 8192, 16000}) {
    const ArenaSizes sizes = SizesOf(gib * kGiB);
    EXPECT_EQ(sizes.window_size_min, 2 * kMiB);
    EXPECT_GE(sizes.windows_aimed, sizes.max_bytes / sizes.window_size_max) << gib;
    EXPECT_LE(sizes.windows_aimed, std::max<uint64_t>(8192, sizes.max_bytes / kWindowSizeMax)) << gib;
    EXPECT_GE(sizes.windows_max, sizes.windows_aimed) << gib;
  }
}

TEST(SmallestWindow, IsTwoMebibytesWhereTheseCanFillTheArena) {
  const ArenaSizes sizes = SizesOf(16 * kGiB, kGiB);
  for (const uint32_t windows : {0U, 4096U, 8191U}) {
    EXPECT_EQ(SmallestWindow(sizes, windows, windows * kWindowSizeMin), kWindowSizeMin);
  }
}

TEST(SmallestWindow, GrowsOnceHalfOfTheSpareIndicesAreUsedUp) {
  const ArenaSizes sizes = SizesOf(4096 * kGiB);  // 4,096 of the largest windows, which leaves as many for small ones.
  EXPECT_EQ(SmallestWindow(sizes, 0, 0), kWindowSizeMin);
  EXPECT_EQ(SmallestWindow(sizes, 2000, 2000 * kWindowSizeMin), kWindowSizeMin);
  EXPECT_GT(SmallestWindow(sizes, 2500, 2500 * kWindowSizeMin), kWindowSizeMin);
  EXPECT_EQ(SmallestWindow(sizes, 4096, 4096 * kWindowSizeMin), kGiB) << "all of them";
  EXPECT_EQ(SmallestWindow(sizes, 9000, 9000 * kWindowSizeMin), kGiB) << "and more than that";
  EXPECT_EQ(SmallestWindow(SizesOf(8192 * kGiB), 0, 0), kGiB) << "no index to spare";
}

TEST(ArenaSizing, IndicesStayWithinWhatDevicesCanRegister) {
  const auto sizes = ArenaSizing({.max_bytes = 32 * kGiB, .window_bytes = 2 * kMiB}, Host(64 * kGiB));
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->windows_max, kWindowsMax);
  EXPECT_NE(Refusal({.max_bytes = 33 * kGiB, .window_bytes = 2 * kMiB}, Host(64 * kGiB)).find("16896"),
            std::string::npos);
}

TEST(ArenaSizing, RefusesAnArenaLargerThanTheMemoryWithFigures) {
  EXPECT_EQ(Refusal({.max_bytes = 65 * kGiB}, Host(64 * kGiB)),
            "an arena of 65 GiB is larger than the memory for it: 64 GiB of this machine, less the host reserve of "
            "4 GiB, leaves 60 GiB; lower arena.maximum or arena.host_reserve");
  EXPECT_EQ(Refusal({.max_bytes = 3 * kGiB}, Host(64 * kGiB, 2 * kGiB)),
            "an arena of 3 GiB is larger than the memory for it: 2 GiB allowed by the cgroup limit (machine: 64 GiB), "
            "less the host reserve of 128 MiB, leaves 1.9 GiB; lower arena.maximum or arena.host_reserve");
  EXPECT_NE(Refusal({.max_bytes = kGiB, .host_reserve_bytes = 8 * kGiB}, Host(8 * kGiB)), "");
}

TEST(ArenaSizing, RefusesWindowsThatCannotBe) {
  EXPECT_NE(Refusal({.window_bytes = 3 * kMiB}, Host(64 * kGiB)).find("power of two"), std::string::npos);
  EXPECT_NE(Refusal({.window_bytes = kMiB}, Host(64 * kGiB)), "");
  EXPECT_NE(Refusal({.window_bytes = 2 * kGiB}, Host(64 * kGiB)), "");
  EXPECT_NE(Refusal({.max_bytes = 64 * kMiB, .window_bytes = 128 * kMiB}, Host(64 * kGiB)).find("do not fit"),
            std::string::npos);
  EXPECT_NE(Refusal({.max_bytes = kMiB}, Host(64 * kGiB)).find("not one window"), std::string::npos);
}

TEST(ArenaSizing, ASmallMachineStillGetsAnArena) {
  const auto sizes = ArenaSizing({}, Host(128 * kMiB));
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->max_bytes, 32 * kMiB);
  EXPECT_NE(Refusal({}, Host(64 * kMiB)), "");
}

}  // namespace
}  // namespace tier::memory
