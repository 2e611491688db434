// MergeState: which small windows of a job are being merged into a larger one, and which windows are looked at next
// (memory/merging.h). Engine thread only.
//
// A merge goes through these phases: none → the larger window is being made → the small ones are being emptied, as a
// pass of HandOverState → none.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/units.h"
#include "proto/window_kind.h"

namespace tier::tiering {

enum class MergePhase : uint8_t { kNone, kMaking, kEmptying };

class MergeState {
 public:
  static constexpr WindowIndex kNoTarget{UINT32_MAX};  // What the job has free already takes all in.

  // Something has changed that may make a merge useful: each of so many windows is looked at once more.
  void LookAgain(uint32_t windows) { left_ = windows; }
  bool any_left() const { return left_ != 0; }
  // The window that is looked at next. REQUIRES: any_left().
  WindowIndex Next(uint32_t windows) {
    TIER_CHECK(left_ != 0 && windows != 0, "{} of {} windows", left_, windows);
    --left_;
    at_ = (at_ + 1) % windows;
    if (at_ == 0) tried_ = 0;
    return WindowIndex{at_};
  }
  // True once in each walk through the table: the windows of a kind of one job are looked through once, not for each of
  // them. (Of two jobs whose indices are the same modulo 32 one waits for the next walk.)
  bool TakeJob(JobIndex job, WindowKind kind) {
    const uint64_t bit = uint64_t{1} << ((2 * Value(job) + static_cast<uint32_t>(kind)) % 64);
    const bool is_new = (tried_ & bit) == 0;
    tried_ |= bit;
    return is_new;
  }

  MergePhase phase() const { return phase_; }
  JobId job() const { return job_; }              // Whose windows they are. REQUIRES: phase() != kNone.
  WindowIndex target() const { return target_; }  // The larger window, or kNoTarget. REQUIRES: phase() != kNone.
  void Start(JobId job, WindowIndex target) {
    TIER_CHECK(phase_ == MergePhase::kNone, "phase {}", static_cast<int>(phase_));
    phase_ = MergePhase::kMaking;
    job_ = job;
    target_ = target;
  }
  void StartEmptying() {
    TIER_CHECK(phase_ == MergePhase::kMaking, "phase {}", static_cast<int>(phase_));
    phase_ = MergePhase::kEmptying;
  }
  void End() { phase_ = MergePhase::kNone; }
  // The windows that are being emptied are those of a merge: nothing is evicted for it.
  bool emptying() const { return phase_ == MergePhase::kEmptying; }

  // No merge begins before that time: the last one has gained nothing.
  base::TimePoint next_at() const { return next_at_; }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }

 private:
  uint32_t left_ = 0;
  uint32_t at_ = 0;
  MergePhase phase_ = MergePhase::kNone;
  JobId job_{};
  WindowIndex target_{};
  base::TimePoint next_at_;
  uint64_t tried_ = 0;  // In this walk: a bit for the index of each job.
};

}  // namespace tier::tiering
