// WindowLedger: which window belongs to whom, in what condition, and where its bytes are. Engine thread only.
//
// The number space of a job's BlockPool is arena-wide: block = window × blocks per window + block in the window.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/page_run.h"
#include "daemon/base/time.h"
#include "proto/units.h"

namespace tier::tiering {

struct JobState;

enum class WindowCondition : uint8_t {
  kNone,
  kMaking,     // Asked of the source; its event has not come.
  kReady,      // In its job's pool.
  kReturning,  // Out of the pool; sessions were asked to unmap it.
};

// How a piece in a window stands to the window's being emptied.
enum class WindowUse : uint8_t { kClean, kDirty, kBound };  // Can be evicted; after a write; not now.
inline constexpr size_t kWindowUses = 3;

struct WindowEntry {
  JobState* job = nullptr;
  std::byte* address = nullptr;
  uint32_t page_size = 0;
  uint32_t unreturned = 0;  // Sessions that still map it.
  WindowCondition condition = WindowCondition::kNone;
  bool emptying = false;                          // Chosen to be handed over (hand_over.cc).
  bool overdue = false;                           // Returning, and the deadline has passed.
  base::TimePoint asked_back_at;                  // While it is returning.
  std::array<uint32_t, kWindowUses> pieces = {};  // That have RAM in it, by WindowUse.

  uint32_t count(WindowUse use) const { return pieces[static_cast<size_t>(use)]; }
};

class WindowLedger {
 public:
  WindowLedger(uint64_t window_size, uint32_t windows_max)
      : window_size_(window_size),
        blocks_per_window_(static_cast<uint32_t>(window_size / kBlockSize)),
        entries_(windows_max) {
    TIER_CHECK(window_size % kBlockSize == 0 && std::has_single_bit(window_size), "window size {}", window_size);
    shift_ = static_cast<uint32_t>(std::countr_zero(blocks_per_window_));
  }

  WindowEntry& operator[](WindowIndex window) {
    TIER_CHECK(tier::Value(window) < entries_.size(), "window {} of {}", tier::Value(window), entries_.size());
    return entries_[tier::Value(window)];
  }
  const WindowEntry& operator[](WindowIndex window) const { return entries_[tier::Value(window)]; }
  bool Contains(WindowIndex window) const { return tier::Value(window) < entries_.size(); }

  uint64_t window_size() const { return window_size_; }
  uint64_t window_pages() const { return window_size_ / kPageSize; }
  uint32_t blocks_per_window() const { return blocks_per_window_; }
  WindowIndex WindowOf(base::PageRun run) const { return WindowIndex{run.block >> shift_}; }
  uint32_t FirstBlock(WindowIndex window) const { return tier::Value(window) << shift_; }
  uint64_t OffsetOf(base::PageRun run) const {  // Bytes from the start of its window.
    return uint64_t{run.block & (blocks_per_window_ - 1)} * kBlockSize + uint64_t{run.page} * kPageSize;
  }
  std::byte* AddressOf(base::PageRun run) const { return entries_[run.block >> shift_].address + OffsetOf(run); }

 private:
  uint64_t window_size_;
  uint32_t blocks_per_window_;
  uint32_t shift_ = 0;
  std::vector<WindowEntry> entries_;
};

}  // namespace tier::tiering
