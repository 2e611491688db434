// The data path allocates nothing in steady state: counted by replacing operator new for this whole program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/libclient/client_fixture.h"

namespace {
std::atomic<uint64_t> g_allocations{0};
thread_local bool g_counting = false;

void* Allocate(size_t size) {
  if (g_counting) g_allocations++;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Both are replaced; where the compiler inlines one and not the other (under the thread sanitizer) it sees a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace tier::session_fake {
namespace {

using AllocationTest = ClientTest;

TEST_F(AllocationTest, AcquireAndReleaseAllocateNothingInSteadyState) {
  Start({.windows = 36, .scatter = true});
  constexpr size_t kCount = 64;
  std::vector<tier_range> ranges(kCount);
  std::vector<tier_lease*> leases(kCount);
  for (size_t i = 0; i < kCount; ++i) tier_seal(Create(i, 5'000));
  tier_seal(Create(kCount, 5 * kMiB));
  for (size_t i = 0; i < kCount; ++i) ranges[i] = {i, 0, 0, 0};
  const auto round = [&] {
    EXPECT_EQ(tier_acquire_batch(client_, ranges.data(), kCount, 0, 0, leases.data()), TIER_OK);
    EXPECT_EQ(tier_release_batch(leases.data(), kCount, 0), TIER_OK);
    tier_lease* const large = Acquire(kCount);
    EXPECT_EQ(Bytes(large).size(), 5 * kMiB);
    tier_release(large, 0);
  };
  // Every pooled answer has held the largest message once after as many rounds as there are.
  for (int i = 0; i < 2 * 1024; ++i) round();
  g_counting = true;
  for (int i = 0; i < 200; ++i) round();
  g_counting = false;
  EXPECT_EQ(g_allocations.load(), 0u);
}

}  // namespace
}  // namespace tier::session_fake
