// MergeState: which small windows of a job are being merged into a larger one, and which windows are looked at next
// (memory/merging.h). Engine thread only.
//
// A merge goes through these phases: none → the larger window is being made → the small ones are being emptied, as a
// pass of HandOverState, and returned → none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/units.h"
#include "proto/window_kind.h"

namespace tier::tiering {

enum class MergePhase : uint8_t { kNone, kMaking, kEmptying };

struct Merge {
  JobId job{};             // Whose windows they are.
  WindowKind kind{};       // Of the windows.
  WindowIndex target{};    // The larger window, or MergeState::kNoTarget.
  uint64_t unneeded = 0;   // Bytes that the job held too much before it got the larger window.
  bool for_slots = false;  // A slot window is to come in the place of the one that is emptied.
};

// A job that lacks a slot window, and a window of whole blocks alone that its other windows can take in.
struct SlotWish {
  JobId job{};
  WindowIndex window{};
};

class MergeState {
 public:
  static constexpr WindowIndex kNoTarget{UINT32_MAX};  // What the job has free already takes all in.

  // Something has changed that may make a merge useful: each of so many windows is looked at once more.
  void LookAgain(uint32_t windows) {
    if (left_ == 0) ++walk_;
    left_ = windows;
    retry_at_.reset();
  }
  bool any_left() const { return left_ != 0; }
  // A job holds more than it needs beside its pieces: that is worth a walk also where indices suffice.
  void NoteUnneeded() { unneeded_ = true; }
  void ClearUnneeded() { unneeded_ = false; }
  bool unneeded() const { return unneeded_; }
  WindowIndex window() const { return WindowIndex{at_}; }  // That is looked at next. REQUIRES: any_left().
  void Advance(uint32_t windows) {
    TIER_CHECK(left_ != 0 && windows != 0, "{} of {} windows", left_, windows);
    --left_;
    at_ = (at_ + 1) % windows;
    if (at_ == 0) ++walk_;
  }
  // The windows of a kind of one job are looked through once in a walk, not for each of them. A walk ends where it has
  // no window left, and where the table ends: what was tried before the last LookAgain is tried again behind that end.
  bool tried(JobIndex job, WindowKind kind) const {
    const size_t at = PlaceOf(job, kind);
    return at < tried_in_.size() && tried_in_[at] == walk_;
  }
  void NoteTried(JobIndex job, WindowKind kind) {
    const size_t at = PlaceOf(job, kind);
    if (at >= tried_in_.size()) tried_in_.resize(at + 1);
    tried_in_[at] = walk_;
  }
  // Windows that this walk passed by may be merged from then on: there is to be another walk.
  void NotePaused(base::TimePoint until) { retry_at_ = retry_at_ ? std::min(*retry_at_, until) : until; }
  bool retry_due(base::TimePoint now) const { return retry_at_ && *retry_at_ <= now; }

  MergePhase phase() const { return phase_; }
  bool merges(JobId job) const { return phase_ != MergePhase::kNone && merge_.job == job; }
  const Merge& merge() const { return merge_; }  // REQUIRES: phase() != kNone.
  void Start(const Merge& merge) {
    TIER_CHECK(phase_ == MergePhase::kNone, "phase {}", static_cast<int>(phase_));
    phase_ = MergePhase::kMaking;
    merge_ = merge;
    seen_ = 0;
    returned_ = 0;
    returned_bytes_ = 0;
  }
  void StartEmptying() {
    TIER_CHECK(phase_ == MergePhase::kMaking, "phase {}", static_cast<int>(phase_));
    phase_ = MergePhase::kEmptying;
  }
  void End() { phase_ = MergePhase::kNone; }
  // REQUIRES: phase() == kNone. It is taken up in the same turn.
  void WishForSlots(const SlotWish& wish) {
    TIER_CHECK(phase_ == MergePhase::kNone, "phase {}", static_cast<int>(phase_));
    slot_wish_ = wish;
  }
  std::optional<SlotWish> TakeSlotWish() { return std::exchange(slot_wish_, std::nullopt); }
  bool makes_room_for_slots(JobId job) const {
    return (slot_wish_ && slot_wish_->job == job) || (merges(job) && merge_.for_slots);
  }
  // The windows that are being emptied are those of a merge: nothing is evicted for it.
  bool emptying() const { return phase_ == MergePhase::kEmptying; }

  // Of the windows of the pass, in their order: those before it went back, or stay.
  size_t seen() const { return seen_; }
  void NoteSeen() { ++seen_; }
  void NoteReturned(uint64_t bytes) {
    ++figures_.windows;
    ++returned_;
    returned_bytes_ += bytes;
  }
  uint32_t returned() const { return returned_; }
  uint64_t returned_bytes() const { return returned_bytes_; }

  void CountEnd(bool fewer) { ++(fewer ? figures_.effective : figures_.in_vain); }
  const MergeFigures& figures() const { return figures_; }

  // When a turn is to look again although nothing has happened.
  std::optional<base::TimePoint> NextDeadline() const { return phase_ == MergePhase::kNone ? retry_at_ : std::nullopt; }

 private:
  static size_t PlaceOf(JobIndex job, WindowKind kind) {
    return kWindowKinds * size_t{Value(job)} + static_cast<size_t>(kind);
  }

  uint32_t left_ = 0;
  bool unneeded_ = false;
  uint32_t at_ = 0;
  uint64_t walk_ = 1;
  std::vector<uint64_t> tried_in_;  // By index of job and kind: the last walk that looked through its windows.
  std::optional<base::TimePoint> retry_at_;
  MergePhase phase_ = MergePhase::kNone;
  Merge merge_;
  std::optional<SlotWish> slot_wish_;
  size_t seen_ = 0;
  uint32_t returned_ = 0;  // Windows that were emptied and went back.
  uint64_t returned_bytes_ = 0;
  MergeFigures figures_;
};

}  // namespace tier::tiering
