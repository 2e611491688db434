// The books of pinned ranges, and a property: parts never cross a border and add up to the whole.
#include "libclient/cuda/window_registry.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "proto/units.h"

namespace tier::cuda {
namespace {

const void* At(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(WindowRegistry, KnowsExactlyWhatWasAdded) {
  WindowRegistry registry;
  EXPECT_FALSE(registry.Known(At(4096), 4096).value());
  registry.Add(At(4096), {4096, true, nullptr});
  EXPECT_TRUE(registry.Known(At(4096), 4096).value());
  EXPECT_FALSE(registry.Known(At(8192), 4096).value());
  EXPECT_EQ(registry.Known(At(4096), 2048).error().code, Code::kInvalid);
  EXPECT_EQ(registry.Known(At(1), 4096).error().code, Code::kInvalid);
  EXPECT_EQ(registry.Known(At(1), 100'000).error().code, Code::kInvalid);
  EXPECT_EQ(registry.own_count(), 1u);
  registry.Remove(At(4096));
  EXPECT_FALSE(registry.Find(At(4096)).has_value());
  EXPECT_EQ(registry.own_count(), 0u);
}

TEST(WindowRegistry, RefusesMoreWindowsThanADaemonCanHave) {
  WindowRegistry registry;
  for (uintptr_t i = 1; i <= kWindowsMax; ++i) registry.Add(At(i << 21), {uint64_t{1} << 21, true, nullptr});
  EXPECT_EQ(registry.Known(At(uintptr_t{kWindowsMax + 1} << 21), 4096).error().code, Code::kNoMemory);
}

RC_GTEST_PROP(WindowRegistry, PartsNeverCrossABorderAndAddUp, ()) {
  WindowRegistry registry;
  std::vector<std::pair<uintptr_t, uintptr_t>> windows;
  uintptr_t at = 1000;
  for (const auto& [gap, size] : *rc::gen::container<std::vector<std::pair<uint8_t, uint8_t>>>(
           rc::gen::pair(rc::gen::arbitrary<uint8_t>(), rc::gen::inRange<uint8_t>(1, 255)))) {
    at += gap % 3 == 0 ? 0 : gap;  // Many are adjacent.
    registry.Add(At(at), {size, true, nullptr});
    windows.emplace_back(at, at + size);
    at += size;
  }
  uintptr_t start = *rc::gen::inRange<uintptr_t>(900, at + 100);
  size_t left = *rc::gen::inRange<size_t>(0, 4000);
  const uintptr_t end = start + left;
  while (left > 0) {
    const size_t part = registry.PartBytes(At(start), left);
    RC_ASSERT(part > 0 && part <= left);
    for (const auto& [first, last] : windows) {
      const bool inside = start >= first && start + part <= last;
      RC_ASSERT(inside || start + part <= first || start >= last);
    }
    start += part;
    left -= part;
  }
  RC_ASSERT(start == end);
}

}  // namespace
}  // namespace tier::cuda
