#include "daemon/memory/arena_sizing.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::memory {
namespace {

HostReading Host(uint64_t total, uint64_t cgroup_limit = kUnlimited) {
  return {.memory_total = total, .memory_available = total, .cgroup_limit = cgroup_limit};
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
  EXPECT_EQ(sizes->window_size, 4 * kMiB);
  EXPECT_EQ(sizes->slot_window_size, 2 * kMiB);
  EXPECT_EQ(sizes->windows_max, 8192U + 1024) << "of 2 MiB, and an eighth more";
  EXPECT_EQ(sizes->host_reserve_bytes, 4 * kGiB);
  EXPECT_EQ(sizes->usable_bytes, 60 * kGiB);
}

TEST(ArenaSizing, TakesAQuarterOfTheCgroupLimitWhereThatIsLess) {
  EXPECT_EQ(ArenaSizing({}, Host(64 * kGiB, 2 * kGiB))->max_bytes, 512 * kMiB);
}

TEST(ArenaSizing, WindowsAreAPowerOfTwoWithinTheirBounds) {
  EXPECT_EQ(ArenaSizing({}, Host(23 * kGiB))->window_size, 2 * kMiB);
  EXPECT_EQ(ArenaSizing({}, Host(24 * kGiB))->max_bytes, 6 * kGiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 28 * kGiB}, Host(64 * kGiB))->window_size, 4 * kMiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 1024 * kGiB}, Host(2048 * kGiB))->window_size, 256 * kMiB);
  EXPECT_EQ(ArenaSizing({.max_bytes = 9000 * kGiB}, Host(16384 * kGiB))->window_size, kGiB);
}

TEST(ArenaSizing, RoundsTheMaximumDownToWholeWindows) {
  const auto sizes = ArenaSizing({.max_bytes = 100 * kMiB + 1, .window_bytes = 8 * kMiB}, Host(8 * kGiB));
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->max_bytes, 96 * kMiB);
  EXPECT_EQ(sizes->windows_max, 48U + 16);
}

TEST(ArenaSizing, SlotWindowsAreSmallAndNeverMoreThanEightThousandOrSo) {
  const auto slot_size = [](uint64_t max_bytes, uint64_t window_bytes = 0) {
    const auto sizes = ArenaSizing({.max_bytes = max_bytes, .window_bytes = window_bytes}, Host(32768 * kGiB));
    EXPECT_TRUE(sizes);
    EXPECT_LE(sizes->slot_window_size, sizes->window_size);
    EXPECT_LE(sizes->max_bytes / sizes->slot_window_size, std::max<uint64_t>(8192, max_bytes / kWindowSizeMax));
    EXPECT_GE(sizes->windows_max, sizes->max_bytes / sizes->slot_window_size);
    return sizes->slot_window_size;
  };
  EXPECT_EQ(slot_size(64 * kMiB, 64 * kMiB), 2 * kMiB);
  EXPECT_EQ(slot_size(16 * kGiB), 2 * kMiB);
  EXPECT_EQ(slot_size(16 * kGiB, kGiB), 2 * kMiB) << "however large block windows are";
  EXPECT_EQ(slot_size(512 * kGiB), 64 * kMiB) << "half of a block window";
  EXPECT_EQ(slot_size(600 * kGiB), 128 * kMiB);
  EXPECT_EQ(slot_size(9000 * kGiB), kGiB);
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
