// The data path allocates nothing in steady state. This binary counts operator new on every thread.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/ssd_tier.h"
#include "tests/support/storage/scratch.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

// Not inlined: the compiler would see free() meet a pointer from new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tier::storage {
namespace {

constexpr WindowIndex kWindow{0};

class DataPathTest : public ::testing::TestWithParam<IoChoice> {};

TEST_P(DataPathTest, AllocatesNothingInSteadyState) {
  const testing::ScratchDirectory directory;
  const auto workers = base::Workers::Start(1, "test").value();
  SsdTierOptions options;
  options.devices = {{.path = directory.path(), .size = 64 * kMiB, .private_file = true}};
  options.io = GetParam();
  auto opened = SsdTier::Open(options, *workers);
  if (!opened && opened.error().code == Code::kDenied) GTEST_SKIP() << "needs io_uring: " << opened.error().message;
  ASSERT_TRUE(opened) << opened.error().message;
  SsdTier& tier = **opened;
  const testing::WindowMemory memory(16 * kMiB);
  const base::GuardedRange guard(memory.data(), memory.size());
  tier.transfers().AddWindow(kWindow, memory.data(), memory.size());
  std::vector<TransferResult> results;
  results.reserve(64);

  const auto round = [&](Direction direction) {
    for (uint32_t block = 0; block < 8; ++block) {
      const Extent extent{.run = {.block = block, .page = 0, .pages = kPagesPerBlock}};
      tier.transfers().Start({.cookie = block,
                              .direction = direction,
                              .extent = extent,
                              .window = kWindow,
                              .memory = memory.data() + block * kBlockSize,
                              .length = block % 2 == 0 ? static_cast<uint32_t>(kBlockSize) : 8192,
                              .crc = 0});
    }
    tier.transfers().Submit();
    results.clear();
    while (tier.transfers().inflight() != 0) {
      (void)testing::WaitReadable(tier.completion_fd(), 1000);
      tier.ClearWakeup();
      tier.transfers().Poll(&results);
    }
  };
  round(Direction::kWrite);
  round(Direction::kRead);
  const uint64_t before = allocations;
  for (int i = 0; i < 5; ++i) {
    round(Direction::kWrite);
    round(Direction::kRead);  // Every checksum is wrong on purpose: the path of the second read counts as well.
  }
  EXPECT_EQ(allocations - before, 0u);
  tier.transfers().RemoveWindow(kWindow);
}

INSTANTIATE_TEST_SUITE_P(Modes, DataPathTest, ::testing::Values(IoChoice::kUring, IoChoice::kThreads));

}  // namespace
}  // namespace tier::storage
