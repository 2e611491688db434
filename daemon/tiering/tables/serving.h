// Serving: the request that is served beyond its job's promise (memory/stalled), or the last one that was. Engine
// thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

// What others have missed for it makes a pause, in which no request is served beyond a promise: this many times as long
// …
inline constexpr uint32_t kPauseFactor = 9;
// … but never longer than this after the end of that service.
inline constexpr base::Duration kPauseMax = std::chrono::seconds(10);
// What was taken is read from SSD again where it is needed: the time for that counts as missed, at this pace.
inline constexpr uint64_t kMissedBytesPerMillisecond = 1 << 20;

// While a job that works within its promise is owed memory, no other gets leases beyond its own promise, so that
// windows can go. But not longer than this each time: it may be that what is owed is not to be had.
inline constexpr base::Duration kHeldBackMax = std::chrono::milliseconds(500);

// Users who were served are known for so long: until as many others have been.
inline constexpr size_t kServedUsersKept = 256;

class Serving {
 public:
  bool any() const { return job_ != JobId{}; }
  JobId job() const { return job_; }
  // The number of that request, or of the last one while none is served.
  uint64_t waiter() const { return waiter_; }
  base::TimePoint until() const { return until_; }
  struct Service {
    JobId job{};
    uint32_t uid = 0;
    uint64_t waiter = 0;
    uint64_t held_bytes = 0;  // That the job held before it.
    base::TimePoint begin;
    base::TimePoint until;
  };
  // Returns the number of this service, which rises.
  uint64_t Begin(const Service& service) {
    job_ = service.job;
    last_job_ = service.job;
    waiter_ = service.waiter;
    held_before_ = service.held_bytes;
    began_at_ = service.begin;
    until_ = service.until;
    taken_bytes_ = 0;
    missed_at_.reset();
    users_[service.uid] = ++services_;
    if (users_.size() > kServedUsersKept)
      users_.erase(std::ranges::min_element(users_, {}, [](const auto& user) { return user.second; }));
    return services_;
  }
  // The number of the last service of a job of that user. 0: there was none, or long ago.
  uint64_t LastOf(uint32_t uid) const {
    const auto found = users_.find(uid);
    return found == users_.end() ? 0 : found->second;
  }
  void End(base::TimePoint now) {
    job_ = JobId{};
    owed_since_ = now;
    ended_at_ = now;
    if (now >= until_) others_from_ = now + (now - began_at_);
  }
  // Others get no leases beyond their promises while a request of `job_` is served. After a service that ran out of its
  // time, they do for as long: one of them may need more before it can end the leases that are waited for.
  bool HoldsBackOthers(base::TimePoint now) const { return any() && now >= others_from_; }

  // Since then at least one job has been owed memory within its promise.
  base::TimePoint owed_since() const { return owed_since_; }
  void NoteNobodyOwed(base::TimePoint now) { owed_since_ = now; }

  // The job that is served, or was last.
  JobId last_job() const { return last_job_; }
  uint64_t held_before() const { return held_before_; }  // The service.
  // Others miss so many bytes that it got by the service, now and until the next call, or until NoteNotMissed.
  void NoteMissed(uint64_t bytes, base::TimePoint now) {
    base::Duration missed = now - missed_at_.value_or(now);
    if (bytes > taken_bytes_) {
      missed += std::chrono::milliseconds((bytes - taken_bytes_) / kMissedBytesPerMillisecond);
      taken_bytes_ = bytes;
    }
    missed_at_ = now;
    const base::TimePoint latest = (any() ? now : ended_at_) + kPauseMax;
    pause_until_ = std::min(std::max(pause_until_, now) + missed * kPauseFactor, latest);
  }
  void NoteNotMissed() { missed_at_.reset(); }
  bool notes_owed() const { return missed_at_ || within_owed_since_; }
  // A job that works within its promise is owed memory, or none is. True: leases are held back no more.
  bool NoteWithinOwed(bool owed, base::TimePoint now) {
    if (!owed) within_owed_since_.reset();
    if (owed && !within_owed_since_) within_owed_since_ = now;
    return std::exchange(held_back_, HoldsBack(now)) && !held_back_;
  }
  // No leases beyond promises now.
  bool HoldsBack(base::TimePoint now) const { return within_owed_since_ && now < held_back_until(); }
  // Only while they are held back.
  base::TimePoint held_back_until() const { return *within_owed_since_ + kHeldBackMax; }
  bool pauses(base::TimePoint now) const { return now < pause_until_; }
  base::TimePoint pause_until() const { return pause_until_; }

 private:
  JobId job_{};
  JobId last_job_{};
  uint64_t waiter_ = 0;
  uint64_t held_before_ = 0;
  base::TimePoint began_at_;
  base::TimePoint until_;
  base::TimePoint ended_at_;
  base::TimePoint others_from_;
  uint64_t services_ = 0;
  std::map<uint32_t, uint64_t> users_;  // By uid: the number of its last service.
  base::TimePoint owed_since_;
  uint64_t taken_bytes_ = 0;                  // The most that others missed in this service, counted once.
  std::optional<base::TimePoint> missed_at_;  // The last time that it was so.
  std::optional<base::TimePoint> within_owed_since_;
  bool held_back_ = false;  // At the last note.
  base::TimePoint pause_until_;
};

}  // namespace tier::tiering
