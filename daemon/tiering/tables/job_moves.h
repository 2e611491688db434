// What a job has of moves in RAM: compactions under way, and what they take of its pool. Rebuilt from records. Engine
// thread only.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"

namespace tier::tiering {

// Of its pieces that move (ram_move_table.h).
class JobMoves {
 public:
  bool any() const { return compactions_ != 0; }
  // Requests of it wait until it has been tried to make room for them (RamMoveTable::Want).
  bool wanted() const { return wanted_ != 0; }
  void Want() { ++wanted_; }
  void EndWant() {
    TIER_CHECK(wanted_ != 0, "no request of {} compactions wants one", compactions_);
    --wanted_;
  }
  // Taken in its pool beside the runs of pieces: targets, what compactions keep free, sources of cancelled moves.
  uint64_t extra_pages() const { return extra_pages_; }
  uint64_t coming_pages() const { return coming_pages_; }  // That compactions under way make room for.
  // The last compactions came to nothing, each because something came before a move.
  uint32_t failures_in_a_row() const { return failures_in_a_row_; }

  void StartCompaction(uint64_t pages) {
    ++compactions_;
    coming_pages_ += pages;
  }
  void EndCompaction(uint64_t pages) {
    TIER_CHECK(compactions_ != 0 && coming_pages_ >= pages, "{} pages of {} in {} compactions", pages, coming_pages_,
               compactions_);
    --compactions_;
    coming_pages_ -= pages;
  }
  // One that a request lacked a run for has come to something, or to nothing.
  void NoteOutcome(bool failed) { failures_in_a_row_ = failed ? failures_in_a_row_ + 1 : 0; }
  void ClearFailures() { failures_in_a_row_ = 0; }
  void AddExtra(uint64_t pages) { extra_pages_ += pages; }
  void RemoveExtra(uint64_t pages) {
    TIER_CHECK(extra_pages_ >= pages, "{} pages of {}", pages, extra_pages_);
    extra_pages_ -= pages;
  }

 private:
  uint32_t compactions_ = 0;
  uint32_t wanted_ = 0;
  uint32_t failures_in_a_row_ = 0;
  uint64_t extra_pages_ = 0;
  uint64_t coming_pages_ = 0;
};

}  // namespace tier::tiering
