// VainWrites: of what a job had written to SSD ahead of need, how much was changed or freed before its memory was
// wanted. Engine thread only.
//
// The idea: a job whose tensors fit in its memory, and nearly fill it, changes them again and again. Half of that would
// be written each time, to no use, by a device that wears out. So what was in vain raises the part of its memory that
// may be dirty, up to all of it; memory that was freed without waiting for a write lowers it four times as fast, and a
// request that lacks room brings it down to what is configured.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tier::tiering {

class VainWrites {
 public:
  static constexpr uint64_t kUseWeight = 4;

  void NoteVain(uint64_t pages) { pages_ += pages; }
  void NoteUse(uint64_t pages) { pages_ -= std::min(pages_, kUseWeight * pages); }
  void NoteShortage() { pages_ = 0; }

  // The dirty pages from which on it writes ahead of need, where these are `start` of `reachable` as configured.
  uint64_t StartOf(uint64_t start, uint64_t reachable) {
    pages_ = std::min(pages_, reachable);
    return reachable == 0 ? start : start + (reachable - start) * pages_ / reachable;
  }

 private:
  uint64_t pages_ = 0;
};

}  // namespace tier::tiering
