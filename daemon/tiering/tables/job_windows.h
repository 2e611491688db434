// JobWindows: the windows of one job. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/tables/merge_pause.h"
#include "daemon/tiering/tables/tensor.h"
#include "daemon/tiering/tables/window_set.h"
#include "proto/units.h"
#include "proto/window_kind.h"

namespace tier::tiering {

// Its windows, from the request for one until it was settled.
class JobWindows {
 public:
  // In its pool, in the order in which they came. The list stays as it is until the next call.
  const std::vector<WindowIndex>& ready() const {
    DropLeft();
    return ready_;
  }
  uint32_t returning() const { return returning_; }  // Out of the pool; sessions still map them.
  uint64_t making_bytes(WindowKind kind) const { return making_bytes_[static_cast<size_t>(kind)]; }
  bool makes_any() const { return making_bytes(WindowKind::kBlock) + making_bytes(WindowKind::kSlot) != 0; }
  // Of the ready ones, those that are to go to another job, or to the host.
  uint64_t emptying_bytes() const { return emptying_bytes_; }

  void StartMaking(WindowKind kind, uint64_t bytes) { making_bytes_[static_cast<size_t>(kind)] += bytes; }
  void EndMaking(WindowKind kind, uint64_t bytes) {
    TIER_CHECK(making_bytes(kind) >= bytes, "{} bytes of kind {} are being made, not {}", making_bytes(kind),
               static_cast<int>(kind), bytes);
    making_bytes_[static_cast<size_t>(kind)] -= bytes;
  }
  void Add(WindowIndex window) {
    if (left_.Contains(window)) DropLeft();  // It has come back under the same index.
    ready_.push_back(window);
  }
  void StartEmptying(uint64_t bytes) { emptying_bytes_ += bytes; }
  void EndEmptying(uint64_t bytes) {
    TIER_CHECK(emptying_bytes_ >= bytes, "{} bytes of {} windows are emptying, not {}", emptying_bytes_, ready_.size(),
               bytes);
    emptying_bytes_ -= bytes;
  }
  void StartReturn(WindowIndex window) {
    TIER_CHECK(left_count_ < ready_.size() && !left_.Contains(window), "window {} is not ready", tier::Value(window));
    left_.Add(window);
    ++left_count_;
    ++returning_;
  }
  void EndReturn() {
    TIER_CHECK(returning_ != 0, "{} windows are ready, none is returning", ready_.size());
    --returning_;
  }

  // The most pages that it ever used at the end of a turn, and since when.
  uint64_t peak_pages() const { return peak_pages_; }
  base::TimePoint rose_at() const { return rose_at_; }
  void NoteUse(uint64_t pages, base::TimePoint now) {
    if (pages <= peak_pages_) return;
    peak_pages_ = pages;
    rose_at_ = now;
  }
  // Windows were made ahead of its need: it is in the AheadQueue.
  bool has_ahead() const { return has_ahead_; }
  void SetHasAhead(bool has) { has_ahead_ = has; }

  // When those of a kind may be merged again.
  const MergePause& merge_pause(WindowKind kind) const { return merge_pauses_[static_cast<size_t>(kind)]; }
  MergePause& EditMergePause(WindowKind kind) { return merge_pauses_[static_cast<size_t>(kind)]; }

  // Where its next windows should come from: the node of the session that last needed room.
  int node() const { return node_; }
  void SetNode(int node) { node_ = node; }

  // A slot takes a whole block where it finds no other room: the last slot window that was needed could not be had, and
  // no memory has come since. `gain`: WindowLedger::memory_gain now.
  bool slots_take_blocks(uint64_t gain) const { return slots_take_blocks_since_ == gain; }
  void SetSlotsTakeBlocks(bool take, uint64_t gain) { slots_take_blocks_since_ = take ? gain : 0; }

 private:
  // A job may return thousands of windows, one after the other: all of them leave the list in one pass.
  void DropLeft() const {
    if (left_count_ == 0) return;
    const size_t erased = std::erase_if(ready_, [this](WindowIndex window) { return left_.Contains(window); });
    TIER_CHECK(erased == left_count_, "{} of {} windows that left were ready", erased, left_count_);
    left_.Clear();
    left_count_ = 0;
  }

  mutable std::vector<WindowIndex> ready_;  // With those of left_.
  mutable WindowSet left_;                  // They are returning, or gone.
  mutable uint32_t left_count_ = 0;
  uint64_t emptying_bytes_ = 0;
  std::array<uint64_t, kWindowKinds> making_bytes_{};
  uint32_t returning_ = 0;
  uint64_t slots_take_blocks_since_ = 0;  // 0: they do not.
  uint64_t peak_pages_ = 0;
  base::TimePoint rose_at_;
  bool has_ahead_ = false;
  std::array<MergePause, kWindowKinds> merge_pauses_;
  int node_ = memory::kAnyNode;
};

}  // namespace tier::tiering
