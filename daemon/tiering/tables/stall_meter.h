// StallMeter: how many requests wait for what, for how long requests have waited for it, and for how long at least one
// did, of all jobs together. A request counts while it waits, not only once it has ended: an alert must see a wait that
// lasts. Time passes from turn to turn, as in StallClock. Engine thread only.
//
// Invariant: what the meter has for a cause == the sum of the parts of that cause in the clocks of all timed requests,
// those that have ended too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/tiering/api/stalls.h"

namespace tier::tiering {

class StallMeter {
 public:
  // A request waits from now on. REQUIRES for all: `now` does not go back.
  void Start(StallCause cause, base::TimePoint now) {
    Advance(now);
    ++At(cause);
  }
  void Change(StallCause from, StallCause to, base::TimePoint now) {
    if (from == to) return;
    End(from, now);
    ++At(to);
  }
  void End(StallCause cause, base::TimePoint now) {
    Advance(now);
    TIER_CHECK(At(cause) != 0, "no request waits for {}", StallCauseName(cause));
    --At(cause);
  }

  const StallCounts& waiting() const { return waiting_; }
  // Until `now`, also of those that still wait.
  StallParts waited(base::TimePoint now) const { return At(now).waited_; }
  // The time in which any request waited: of many that wait at once it counts once.
  StallParts any_waited(base::TimePoint now) const { return At(now).any_waited_; }

 private:
  StallMeter At(base::TimePoint now) const {
    StallMeter then = *this;
    then.Advance(now);
    return then;
  }
  uint64_t& At(StallCause cause) { return waiting_[static_cast<size_t>(cause)]; }
  void Advance(base::TimePoint now) {
    TIER_CHECK(since_ <= now, "requests wait since a time {} ns ahead", (since_ - now).count());
    for (size_t cause = 0; cause < kStallCauses; ++cause) {
      // Requests are far fewer than would make this overflow: 2^63 ns are 292 years of one.
      waited_[cause] += static_cast<int64_t>(waiting_[cause]) * (now - since_);
      if (waiting_[cause] != 0) any_waited_[cause] += now - since_;
    }
    since_ = now;
  }

  StallCounts waiting_{};
  StallParts waited_{};
  StallParts any_waited_{};
  base::TimePoint since_;
};

}  // namespace tier::tiering
