// Windows of random sizes come and go, none smaller than SmallestWindow says unless nothing larger fits: then there is
// always an index for all of the memory that is left.
#include <algorithm>
#include <bit>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "daemon/memory/arena_sizing.h"
#include "proto/units.h"

namespace tier::memory {
namespace {

class Windows {
 public:
  explicit Windows(const ArenaSizes& sizes) : sizes_(sizes) {}

  // Of the size wished for, or more where the arena wishes that; less where it has no more. False: it is full.
  bool Start(uint64_t wished) {
    uint64_t size = std::max(wished, SmallestWindow(sizes_, count(), bytes_));
    RC_ASSERT(std::has_single_bit(size) && size >= sizes_.window_size_min && size <= sizes_.window_size_max);
    while (size > sizes_.window_size_min && bytes_ + size > sizes_.max_bytes) size /= 2;
    if (bytes_ + size > sizes_.max_bytes) return false;
    RC_ASSERT(count() < sizes_.windows_max);
    bytes_ += size;
    windows_.push_back(size);
    return true;
  }
  void Retire(uint32_t which) {
    if (windows_.empty()) return;
    std::swap(windows_[which % windows_.size()], windows_.back());
    bytes_ -= windows_.back();
    windows_.pop_back();
  }
  // The large ones go: the small ones that stay have used up indices.
  void RetireLarge(uint64_t from) {
    std::erase_if(windows_, [&](uint64_t size) {
      if (size >= from) bytes_ -= size;
      return size >= from;
    });
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint32_t count() const { return static_cast<uint32_t>(windows_.size()); }

  ArenaSizes sizes_;
  std::vector<uint64_t> windows_;
  uint64_t bytes_ = 0;
};

RC_GTEST_PROP(SmallestWindowProperty, IndicesAreLeftForAllOfTheMemory, ()) {
  const uint64_t gib = *rc::gen::element<uint64_t>(3, 17, 100, 512, 4096, 8000, 8192, 16000);
  const ArenaSizes sizes =
      ArenaSizing({.max_bytes = gib * kGiB}, {.memory_total = 32768 * kGiB, .memory_available = 32768 * kGiB}).value();
  Windows windows(sizes);
  const auto steps = *rc::gen::arbitrary<std::vector<std::pair<uint8_t, uint8_t>>>();
  for (const auto& [action, number] : steps) {
    const uint64_t wished = std::min(sizes.window_size_min << (number % 10U), sizes.window_size_max);
    for (uint32_t i = 0; i < 37U * number; ++i) {
      if (action % 8 < 4) windows.Start(action % 2 == 0 ? sizes.window_size_min : wished);
      if (action % 8 >= 4 && action % 8 < 6) windows.Retire(number + i);
    }
    if (action % 8 == 6) windows.RetireLarge(wished);
  }
  while (windows.Start(sizes.window_size_min)) {
  }
  RC_ASSERT(windows.bytes() == sizes.max_bytes);
}

}  // namespace
}  // namespace tier::memory
