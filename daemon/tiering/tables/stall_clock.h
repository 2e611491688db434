// StallClock: how long one request has waited for what, from turn to turn. JobStalls: the latest long waits of a job.
// Neither costs a request that is answered at once: only waiters have a clock, and a list is made when its first entry
// comes. Engine thread only.
//
// Invariants: total() == the time from Start to the last Note; JobStalls::size() == min(ended(), kStallsKept).
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/api/stalls.h"

namespace tier::tiering {

class StallClock {
 public:
  // It waits for this from now on; since then for what was noted last. The first time: since `arrived`.
  void Note(StallCause cause, base::TimePoint arrived, base::TimePoint now) {
    const base::TimePoint since = begun_ ? since_ : arrived;
    TIER_CHECK(since <= now, "a request waits since a time {} ns ahead", (since - now).count());
    parts_[static_cast<size_t>(cause_)] += now - since;
    since_ = now;
    begun_ = true;
    cause_ = cause;
  }
  // The same, before its arrival is known.
  void NoteUntimed(StallCause cause) { cause_ = cause; }
  void SetPlace(uint64_t tensor, uint64_t space) {
    tensor_ = tensor;
    space_ = space;
  }

  StallCause cause() const { return cause_; }
  const StallParts& parts() const { return parts_; }
  base::Duration total() const { return std::accumulate(parts_.begin(), parts_.end(), base::Duration{0}); }
  uint64_t tensor() const { return tensor_; }
  uint64_t space() const { return space_; }

 private:
  StallParts parts_{};
  base::TimePoint since_;
  uint64_t tensor_ = 0;
  uint64_t space_ = 0;
  StallCause cause_ = StallCause::kQueue;
  bool begun_ = false;
};

class JobStalls {
 public:
  void Add(const Stall& stall) {
    if (kept_.empty()) kept_.reserve(kStallsKept);
    if (kept_.size() < kStallsKept) {
      kept_.push_back(stall);
    } else {
      kept_[ended_ % kStallsKept] = stall;
    }
    ++ended_;
  }
  size_t size() const { return kept_.size(); }
  uint64_t ended() const { return ended_; }
  // The newest first.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 1; i <= kept_.size(); ++i) visit(kept_[(ended_ - i) % kStallsKept]);
  }

 private:
  std::vector<Stall> kept_;
  uint64_t ended_ = 0;
};

}  // namespace tier::tiering
