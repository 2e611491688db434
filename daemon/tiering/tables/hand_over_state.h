// HandOverState: which windows are being emptied for another job, how far they were looked through, and when hand-over
// runs again. Engine thread only.
//
// Windows are emptied in passes: windows are chosen, each of their blocks is looked at once, pieces move or are noted
// as to be evicted; when the moves have ended, what was noted is evicted, and the pass ends. Windows that are being
// emptied have WindowEntry::emptying set, until they are returned or are kept after all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class HandOverState {
 public:
  base::TimePoint next_at() const { return next_at_; }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }

  void AddWindow(WindowIndex window) { windows_.push_back(window); }
  const std::vector<WindowIndex>& windows() const { return windows_; }  // Of this pass, in the order of their choice.
  bool emptying() const { return !windows_.empty(); }
  // The pass ends: no window is being emptied any more. Moves that are under way go on.
  void Clear() {
    windows_.clear();
    clean_.clear();
    at_ = 0;
    block_ = 0;
  }

  // The window that is looked at next, and which of its blocks.
  bool looked() const { return at_ == windows_.size(); }
  WindowIndex window() const { return windows_[at_]; }
  uint32_t block() const { return block_; }
  void NextBlock(uint32_t of_blocks) {
    if (++block_ == of_blocks) NextWindow();
  }
  void NextWindow() {
    TIER_CHECK(!looked(), "{} windows", windows_.size());
    ++at_;
    block_ = 0;
  }
  // A piece in one of the windows that can be evicted when all were looked at, and moves have ended.
  void AddClean(PieceId piece) { clean_.push_back(piece); }
  bool any_clean() const { return !clean_.empty(); }
  PieceId TakeClean() {
    const PieceId piece = clean_.back();
    clean_.pop_back();
    return piece;
  }

  // Compactions that empty blocks of windows: also those of passes that have ended.
  void StartMoves() { ++moving_; }
  void EndMoves(WindowIndex window) {
    TIER_CHECK(moving_ != 0, "window {}", tier::Value(window));
    --moving_;
    moved_.push_back(window);
  }
  bool moving() const { return moving_ != 0; }
  bool any_moved() const { return !moved_.empty(); }
  std::vector<WindowIndex> TakeMoved() { return std::exchange(moved_, {}); }  // Windows whose moves have ended.

  // A request waits for what another job of its user holds beyond its part of the quota (memory/quota_parts.h).
  bool within_users() const { return within_users_; }
  void SetWithinUsers(bool waits) { within_users_ = waits; }

  void CountReturned(LeftBy how) { ++figures_.windows[static_cast<size_t>(how)]; }
  void CountLent(uint64_t bytes) { figures_.lent_bytes += bytes; }
  void CountEvicted(uint64_t bytes) { figures_.evicted_bytes += bytes; }
  const HandOverFigures& figures() const { return figures_; }

 private:
  base::TimePoint next_at_;
  std::vector<WindowIndex> windows_;
  size_t at_ = 0;       // Windows before it were looked at, …
  uint32_t block_ = 0;  // … and blocks of that one before this one.
  std::vector<PieceId> clean_;
  uint32_t moving_ = 0;
  std::vector<WindowIndex> moved_;
  bool within_users_ = false;
  HandOverFigures figures_;
};

}  // namespace tier::tiering
