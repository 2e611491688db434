// MergePause: when windows of one kind of a job may be merged again, and which of them stays. Engine thread only.
//
// A merge that left the job with as many windows as before would most likely do so again: what lies in them is leased,
// or finds no hole. It has made and zeroed a window for that. So each such merge makes the pause twice as long, until
// windows that were merged into a new one have become fewer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "daemon/base/time.h"
#include "proto/units.h"

namespace tier::tiering {

inline constexpr base::Duration kMergePauseFirst = std::chrono::seconds(1);
inline constexpr base::Duration kMergePauseLongest = std::chrono::seconds(256);
inline constexpr base::Duration kMergeTargetKept = std::chrono::seconds(60);

// What a merge depends on of its job: as long as none of it changes, a merge that came to nothing does so again.
struct MergeGrounds {
  base::TimePoint requested_at;  // By any of its sessions, last.
  size_t sessions = 0;
  uint64_t used_pages = 0;
  uint64_t free_pages = 0;
  uint64_t wished_bytes = 0;  // Of the larger window.

  friend bool operator==(const MergeGrounds&, const MergeGrounds&) = default;
};

class MergePause {
 public:
  static constexpr WindowIndex kNone{UINT32_MAX};

  base::TimePoint until() const { return until_; }
  bool over(base::TimePoint now, const MergeGrounds& grounds) const {
    return until_ <= now && (length_ < kMergePauseLongest || grounds != grounds_);
  }
  void Extend(base::TimePoint now) {
    length_ = length_ == base::Duration::zero() ? kMergePauseFirst : std::min(2 * length_, kMergePauseLongest);
    until_ = now + length_;
  }
  void NoteInVain(const MergeGrounds& grounds) { grounds_ = grounds; }
  void Begin(base::TimePoint now) { until_ = now + kMergePauseFirst; }  // The next one is as long as without it.
  void Reset() { length_ = base::Duration::zero(); }                    // The next one is the first.

  // The last merge was into room that the job had, and in vain: the next one is into a larger window, if there may be.
  bool target_first() const { return target_first_; }
  void SetTargetFirst(bool first) { target_first_ = first; }

  // What others were merged into last is not emptied for some time: it may have least to move, and would be made again.
  void KeepTarget(WindowIndex target, base::TimePoint now) {
    target_ = target;
    target_until_ = now + kMergeTargetKept;
  }
  WindowIndex kept_target(base::TimePoint now) const { return now < target_until_ ? target_ : kNone; }

 private:
  base::TimePoint until_;
  base::Duration length_ = base::Duration::zero();
  MergeGrounds grounds_;  // At the end of the last merge that came to nothing.
  bool target_first_ = false;
  WindowIndex target_ = kNone;
  base::TimePoint target_until_;
};

}  // namespace tier::tiering
