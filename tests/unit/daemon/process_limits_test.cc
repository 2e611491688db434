#include "daemon/process_limits.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "daemon/base/capability.h"
#include "tests/support/storage/without_memory_lock.h"

namespace tier {
namespace {

TEST(ProcessLimits, ALimitIsToldThatHolds) {
  const storage::testing::WithoutMemoryLock few;
  EXPECT_EQ(LockableText(), "1 MiB of memory");
}

TEST(ProcessLimits, ALimitThatACapabilityLiftsIsNoLimit) {
  if (!base::HasCapability(CAP_IPC_LOCK)) GTEST_SKIP() << "needs CAP_IPC_LOCK";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
  EXPECT_EQ(LockableText(), "any amount of memory (CAP_IPC_LOCK lifts the limit of 1 MiB)");
  EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(ProcessLimits, ACapabilityIsThereUntilItIsGivenUp) {
  const bool before = base::HasCapability(CAP_IPC_LOCK);
  {
    const storage::testing::WithoutMemoryLock few;
    EXPECT_FALSE(base::HasCapability(CAP_IPC_LOCK));
  }
  EXPECT_EQ(base::HasCapability(CAP_IPC_LOCK), before);
}

}  // namespace
}  // namespace tier
