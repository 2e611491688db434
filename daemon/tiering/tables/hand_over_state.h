// HandOverState: which windows are being emptied for another job, which pieces were found in them so far, and when
// hand-over runs again. Engine thread only.
//
// Windows that are being emptied have WindowEntry::emptying set, until they are returned or are kept after all.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class HandOverState {
 public:
  base::TimePoint next_at() const { return next_at_; }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }

  void AddWindow(WindowIndex window) { windows_.push_back(window); }
  const std::vector<WindowIndex>& windows() const { return windows_; }
  bool emptying() const { return !windows_.empty(); }
  // No window is being emptied any more.
  void Clear() {
    windows_.clear();
    clean_.clear();
    cursor_ = 0;
  }

  // Every piece that the slab holds is looked at once, in the order of their ids. kNoPiece: all were.
  PieceId Next(const PieceSlab& pieces) const {
    TIER_CHECK(cursor_ <= pieces.capacity(), "cursor {} of {}", cursor_, pieces.capacity());
    const uint32_t next = pieces.NextHeld(cursor_);
    return next == pieces.capacity() ? kNoPiece : PieceId{next};
  }
  void NoteLookedAt(PieceId piece) { cursor_ = Value(piece) + 1; }
  // A piece in one of the windows that can be evicted once all were looked at.
  void AddClean(PieceId piece) { clean_.push_back(piece); }
  bool any_clean() const { return !clean_.empty(); }
  PieceId TakeClean() {
    const PieceId piece = clean_.back();
    clean_.pop_back();
    return piece;
  }

 private:
  base::TimePoint next_at_;
  std::vector<WindowIndex> windows_;
  std::vector<PieceId> clean_;
  uint32_t cursor_ = 0;  // Pieces below it were looked at.
};

}  // namespace tier::tiering
