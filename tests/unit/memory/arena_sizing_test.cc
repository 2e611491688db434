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
  EXPECT_EQ(sizes->windows_aimed, 7500U);
  EXPECT_EQ(sizes->windows_max, kWindowsOfNode) << "and a fifteenth that may be closing";
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
    EXPECT_GE(sizes.windows_max, sizes.windows_aimed) << gib;
  }
}

TEST(ArenaSizing, ANodeHasAtMostEightThousandWindows) {
  for (const uint64_t gib : {1, 15, 16, 17, 64, 512, 600, 1023, 4096, 7000, 7240}) {
    EXPECT_LE(SizesOf(gib * kGiB).windows_max, 8000U) << gib;
  }
  for (const uint64_t mib : {8, 16, 64, 1024}) EXPECT_LE(SizesOf(56 * kGiB, mib * kMiB).windows_max, 8000U) << mib;
  // One for each GiB, for small jobs, and for those that are being closed.
  EXPECT_EQ(SizesOf(8192 * kGiB).windows_max, 8192U + 256 + 500);
  EXPECT_EQ(SizesOf(16384 * kGiB).windows_max, kWindowsMax);
}

WindowWishes Wished(const ArenaSizes& sizes, const WindowsInUse& used, uint64_t job_bytes) {
  return WindowsWished(sizes, used, {.kind_bytes = job_bytes, .all_bytes = job_bytes});
}

TEST(WindowsWished, AreAPartOfWhatTheJobHolds) {
  const ArenaSizes sizes = SizesOf(512 * kGiB);
  EXPECT_EQ(Wished(sizes, {}, 0).next, kWindowSizeMin);
  EXPECT_EQ(Wished(sizes, {}, 600 * kMiB).next, 2 * kMiB);
  EXPECT_EQ(Wished(sizes, {}, kGiB).next, 4 * kMiB);
  EXPECT_EQ(Wished(sizes, {}, 65 * kGiB).next, 256 * kMiB);
  EXPECT_EQ(Wished(sizes, {}, 500 * kGiB).next, 256 * kMiB) << "the largest";
  EXPECT_EQ(Wished(sizes, {}, 500 * kGiB).merged, 0U);
  const WindowHolder few_slots{.kind_bytes = 10 * kMiB, .all_bytes = 65 * kGiB};
  EXPECT_EQ(WindowsWished(sizes, {}, few_slots).next, 2 * kMiB) << "of its kind";
}

TEST(WindowsWished, AreAsSmallAsTheyMayBeWhereTheSmallestOnesCanFillTheArena) {
  const ArenaSizes sizes = SizesOf(14 * kGiB, kGiB);
  for (const uint32_t windows : {0U, 4096U, 7167U}) {
    const WindowWishes wished = Wished(sizes, {windows, windows * kWindowSizeMin}, kGiB);
    EXPECT_EQ(wished.next, 4 * kMiB);
    EXPECT_EQ(wished.merged, 0U);
  }
}

// The spare indices of a node of 4 TiB are those beyond one for each GiB.
TEST(WindowsWished, GrowForLargeJobsFirstAsSpareIndicesAreUsedUp) {
  const ArenaSizes sizes = SizesOf(4096 * kGiB);
  const uint32_t spare = sizes.windows_aimed - 4096;
  const auto wished = [&](double used, uint64_t job_bytes) {
    return Wished(sizes, {static_cast<uint32_t>(used * spare) + 1, 0}, job_bytes);
  };
  EXPECT_EQ(wished(0.7, 65 * kGiB).next, 256 * kMiB);
  EXPECT_GT(wished(0.8, 65 * kGiB).next, 256 * kMiB);
  EXPECT_EQ(wished(0.9, 65 * kGiB).next, kGiB);
  EXPECT_EQ(wished(0.9, 2 * kGiB).next, kGiB);
  EXPECT_EQ(wished(0.9, 600 * kMiB).next, 2 * kMiB) << "small jobs come last";
  EXPECT_GT(wished(0.95, 600 * kMiB).next, 2 * kMiB);
  EXPECT_EQ(wished(1.5, 600 * kMiB).next, kGiB);
}

TEST(WindowsWished, AreMergedBeforeAnyJobStartsLargerOnes) {
  const ArenaSizes sizes = SizesOf(4096 * kGiB);
  const uint32_t spare = sizes.windows_aimed - 4096;
  const auto wished = [&](double used, uint64_t job_bytes) {
    return Wished(sizes, {static_cast<uint32_t>(used * spare) + 1, 0}, job_bytes);
  };
  EXPECT_EQ(wished(0.24, 65 * kGiB).merged, 0U);
  EXPECT_EQ(wished(0.26, 65 * kGiB).merged, 256 * kMiB);
  EXPECT_EQ(wished(0.26, 65 * kGiB).next, 256 * kMiB);
  EXPECT_EQ(wished(0.4, 10 * kGiB).merged, 128 * kMiB) << "four times as large as new ones";
  EXPECT_EQ(wished(0.45, 65 * kGiB).merged, kGiB) << "the largest";
}

TEST(ArenaSizing, RefusesSizesThatTakeMoreIndicesThanThereAre) {
  EXPECT_NE(Refusal({.max_bytes = 32 * kGiB, .window_bytes = 4 * kMiB}, Host(64 * kGiB))
                .find("needs 8192 of them, and 7500 is the most: raise arena.window_size"),
            std::string::npos);
  EXPECT_EQ(SizesOf(32 * kGiB, 8 * kMiB).windows_max, kWindowsOfNode);
  EXPECT_NE(Refusal({.max_bytes = 16385 * kGiB}, Host(32768 * kGiB)).find("lower arena.maximum"), std::string::npos);
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
