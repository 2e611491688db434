// "pinned" is said where it is proven that all windows can be registered, and before there is one.
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/ssd_tier.h"
#include "daemon/storage/uring.h"
#include "tests/support/storage/scratch.h"
#include "tests/support/storage/ssd_tier_fixture.h"
#include "tests/support/storage/without_memory_lock.h"

namespace tier::storage {
namespace {

using ::testing::HasSubstr;
using testing::WithoutMemoryLock;

class Pinning : public testing::SsdTierFixture {};

TEST_F(Pinning, IsPinnedFromTheStartOnlyWhereAllWindowsCanBe) {
  const WithoutMemoryLock ordinary;
  SsdTierOptions options = Options();
  options.window_bytes_max = 2 * kMiB;
  const auto short_of_it = Open(options);
  ASSERT_NE(short_of_it, nullptr);
  if (short_of_it->io_mode() != IoMode::kUring) GTEST_SKIP() << "needs io_uring: " << short_of_it->io_mode_reason();
  EXPECT_FALSE(short_of_it->pinned()) << "before the first window";
  EXPECT_THAT(short_of_it->unpinned_reason(), HasSubstr("RLIMIT_MEMLOCK is 1 MiB"));
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, kMiB) << "the trial leaves the limit as it was";
}

TEST_F(Pinning, IsPinnedWithinTheLimitAndForEachDevice) {
  const WithoutMemoryLock ordinary;
  SsdTierOptions options = Options();
  options.window_bytes_max = 768 * kKiB;
  {
    const auto one = Open(options);
    ASSERT_NE(one, nullptr);
    if (one->io_mode() != IoMode::kUring) GTEST_SKIP() << "needs io_uring: " << one->io_mode_reason();
    EXPECT_TRUE(one->pinned()) << one->unpinned_reason();
  }
  options.devices.push_back({.path = directory_.path(), .size = kSize, .private_file = true});
  const auto two = Open(options);
  ASSERT_NE(two, nullptr);
  EXPECT_THAT(two->unpinned_reason(), HasSubstr("1.5 MiB of locked memory"));
}

TEST_F(Pinning, TheRightToLockMemoryIsWorthMoreThanTheLimit) {
  if (!ProvePinning(~uint64_t{0})) GTEST_SKIP() << "needs CAP_IPC_LOCK, or no limit on locked memory";
  SsdTierOptions options = Options();
  options.window_bytes_max = 1ull << 50;
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_TRUE(tier->pinned()) << tier->unpinned_reason();
}

TEST_F(Pinning, WithoutADeviceNothingIsPinned) {
  SsdTierOptions options = Options();
  options.devices.clear();
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_FALSE(tier->pinned());
  EXPECT_THAT(tier->unpinned_reason(), HasSubstr("without an SSD device"));
}

}  // namespace
}  // namespace tier::storage
