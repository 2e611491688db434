// The slot path of BlockPool allocates nothing in steady state: counted by replacing operator new.
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/block_pool.h"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

// Not inlined: seeing malloc behind new, the compiler warns of mismatched pairs.
__attribute__((noinline)) void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto bytes = static_cast<size_t>(alignment);
  void* memory = std::aligned_alloc(bytes, (size + bytes - 1) / bytes * bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tier::base {
namespace {

TEST(BlockPoolAllocation, TheCounterCounts) {
  const uint64_t before = allocations.load();
  const auto something = std::make_unique<std::vector<int>>(10);
  EXPECT_GE(allocations.load(), before + 2) << something->size();
}

TEST(BlockPoolAllocation, SlotsAndBlocksComeAndGoWithoutTheHeap) {
  BlockPool pool;
  pool.AddRegion(0, 512, RegionUse::kSlotsFirst);
  std::minstd_rand random(7);
  std::vector<PageRun> live;
  live.reserve(20'000);
  // Once, every block a slot block, with many slots: the books then have all the room they will ever need for this
  // region.
  while (const PageRun run = pool.TryAllocateRun(32)) live.push_back(run);
  ASSERT_EQ(pool.slot_block_count(), 512U);
  for (const PageRun& run : live) pool.Free(run);
  live.clear();
  const auto churn = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const bool full = live.size() > 5000;
      if (full || (!live.empty() && random() % 2 == 0)) {
        const size_t at = random() % live.size();
        pool.Free(live[at]);
        live[at] = live.back();
        live.pop_back();
      } else if (const PageRun run = pool.TryAllocateRun(random() % 64 == 0 ? 512 : 1 + random() % 16)) {
        live.push_back(run);
      }
    }
  };
  churn(200'000);
  const uint64_t before = allocations.load();
  churn(200'000);
  EXPECT_EQ(allocations.load(), before);
  pool.CheckInvariants();
}

TEST(BlockPoolAllocation, TensorsOfBlocksAndTailsComeAndGoWithoutTheHeap) {
  BlockPool pool;
  pool.AddRegion(0, 4096, RegionUse::kSlotsFirst);
  std::vector<std::vector<PageRun>> tensors(100);
  for (auto& runs : tensors) runs.reserve(64);
  std::minstd_rand random(9);
  for (auto& runs : tensors) ASSERT_TRUE(pool.TryAllocate(36, 511, &runs));  // More slot blocks than will be needed.
  const auto churn = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      auto& runs = tensors[random() % tensors.size()];
      for (const PageRun& run : runs) pool.Free(run);
      runs.clear();
      ASSERT_TRUE(pool.TryAllocate(random() % 32, random() % 512, &runs));
    }
  };
  churn(20'000);
  const uint64_t before = allocations.load();
  churn(20'000);
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace tier::base
