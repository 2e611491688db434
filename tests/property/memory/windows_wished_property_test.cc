// Windows of random sizes come and go, none smaller than WindowsWished says unless nothing larger fits: then there is
// always an index for all of the memory that is left. And what is wished for is a part of what the job holds, larger
// only as indices are used up, and for small jobs last.
#include <algorithm>
#include <bit>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "daemon/memory/arena_sizing.h"
#include "proto/units.h"

namespace tier::memory {
namespace {

ArenaSizes SizesOf(uint64_t gib) {
  return ArenaSizing({.max_bytes = gib * kGiB}, {.memory_total = 32768 * kGiB, .memory_available = 32768 * kGiB})
      .value();
}

ArenaSizes DrawSizes() { return SizesOf(*rc::gen::element<uint64_t>(3, 17, 100, 512, 4096, 7000, 8192, 16000)); }

class Windows {
 public:
  explicit Windows(const ArenaSizes& sizes) : sizes_(sizes) {}

  // As a job of so many bytes starts one; less where the arena has no more. False: it is full.
  bool Start(uint64_t job_bytes) {
    uint64_t size = WindowsWished(sizes_, {count(), bytes_}, {.kind_bytes = job_bytes, .all_bytes = job_bytes}).next;
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
  uint32_t count() const { return static_cast<uint32_t>(windows_.size()); }

 private:
  ArenaSizes sizes_;
  std::vector<uint64_t> windows_;
  uint64_t bytes_ = 0;
};

RC_GTEST_PROP(WindowsWishedProperty, IndicesAreLeftForAllOfTheMemory, ()) {
  const ArenaSizes sizes = DrawSizes();
  Windows windows(sizes);
  const auto steps = *rc::gen::arbitrary<std::vector<std::pair<uint8_t, uint8_t>>>();
  for (const auto& [action, number] : steps) {
    const uint64_t window = std::min(sizes.window_size_min << (number % 10U), sizes.window_size_max);
    for (uint32_t i = 0; i < 37U * number; ++i) {
      if (action % 8 < 4) windows.Start(action % 2 == 0 ? 0 : kWindowsHeld * window);
      if (action % 8 >= 4 && action % 8 < 6) windows.Retire(number + i);
    }
    if (action % 8 == 6) windows.RetireLarge(window);
  }
  while (windows.Start(0)) {
  }
  RC_ASSERT(windows.bytes() == sizes.max_bytes);
}

// Whatever large jobs start, one of less than 1 GiB still finds windows of its own size.
RC_GTEST_PROP(WindowsWishedProperty, LargeJobsLeaveSmallWindowsToSmallOnes, ()) {
  const ArenaSizes sizes = SizesOf(*rc::gen::element<uint64_t>(512, 1000, 4096, 7000));
  Windows windows(sizes);
  const auto jobs = *rc::gen::container<std::vector<uint16_t>>(rc::gen::arbitrary<uint16_t>());
  for (const uint16_t gib : jobs) {
    for (uint64_t held = kSmallJob; held < (1 + gib % 512U) * kGiB && 2 * windows.bytes() < sizes.max_bytes;) {
      const uint64_t before = windows.bytes();
      if (!windows.Start(held)) break;
      held += windows.bytes() - before;
    }
  }
  const WindowsInUse used{windows.count(), windows.bytes()};
  for (const uint64_t mib : {2, 100, 600, 1023}) {
    const WindowHolder job{.kind_bytes = mib * kMiB, .all_bytes = mib * kMiB};
    const uint64_t own = std::max(std::bit_floor(mib * kMiB / kWindowsHeld), kWindowSizeMin);
    RC_ASSERT(WindowsWished(sizes, used, job).next == own);
  }
}

RC_GTEST_PROP(WindowsWishedProperty, SizesOnlyGrowAsIndicesAreUsedUp, ()) {
  const ArenaSizes sizes = DrawSizes();
  const uint64_t bytes = *rc::gen::inRange<uint64_t>(0, sizes.max_bytes / kMiB) * kMiB;
  const uint64_t held = *rc::gen::inRange<uint64_t>(0, 128 * 1024) * kMiB;
  const WindowHolder job{.kind_bytes = held, .all_bytes = held};
  WindowWishes last = WindowsWished(sizes, {0, bytes}, job);
  for (uint32_t windows = 0; windows <= sizes.windows_max; windows += 7) {
    const WindowWishes wished = WindowsWished(sizes, {windows, bytes}, job);
    RC_ASSERT(wished.next >= last.next && wished.merged >= last.merged);
    RC_ASSERT(wished.merged == 0 || wished.merged >= sizes.window_size_min);
    last = wished;
  }
}

}  // namespace
}  // namespace tier::memory
