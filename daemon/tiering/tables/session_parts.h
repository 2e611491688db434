// What a session has under way and holds, each kind with one owner: its requests, the windows that its client maps, the
// tensors that it creates, its list of tensors. All of it is rebuilt from records, or ends with the session. Engine
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/tensor.h"
#include "daemon/tiering/tables/window_set.h"

namespace tier::tiering {

// Its requests. A request is outstanding from its arrival until its answer; it may wait in the WaitTable meanwhile.
class SessionRequests {
 public:
  uint32_t outstanding() const { return outstanding_; }  // Submitted and not yet answered.
  uint32_t waiting() const { return waiting_; }          // In the WaitTable.
  uint32_t unfinished() const { return unfinished_; }    // Of those, what the next ones come after (HoldsBackNext).

  void Start() { ++outstanding_; }
  void End() {
    TIER_CHECK(outstanding_ != 0, "nothing is outstanding, and {} requests wait", waiting_);
    --outstanding_;
  }
  // Only a request that is outstanding begins to wait. Its answer may come before it is out of the table, and the
  // requests of a session that has ended leave the table without an answer.
  void StartWait(bool unfinished) {
    TIER_CHECK(waiting_ < outstanding_, "{} requests wait of {}", waiting_, outstanding_);
    ++waiting_;
    unfinished_ += unfinished ? 1 : 0;
  }
  void EndWait(bool unfinished) {
    TIER_CHECK(waiting_ != 0 && (!unfinished || unfinished_ != 0), "{} requests wait, {} of them unfinished", waiting_,
               unfinished_);
    --waiting_;
    unfinished_ -= unfinished ? 1 : 0;
  }
  // One of those that the next ones come after waits as others do from now on.
  void LetNextPass() {
    EndWait(true);
    StartWait(false);
  }

 private:
  uint32_t outstanding_ = 0;
  uint32_t waiting_ = 0;
  uint32_t unfinished_ = 0;
};

// Windows that were announced to its client, which may map them until it has returned them.
class SessionWindows {
 public:
  const WindowSet& mapped() const { return mapped_; }
  bool maps(WindowIndex window) const { return mapped_.Contains(window); }
  bool any_overdue() const { return overdue_ != 0; }  // Asked back longer ago than the deadline.
  // Windows were taken without its answer, and it has not answered since: it is not waited for.
  bool silent() const { return silent_; }
  void SetSilent(bool silent) { silent_ = silent; }
  // Windows were taken without its answer, and for some of them it has not come since.
  bool any_taken() const { return !taken_.empty(); }
  // `number`: of the window (WindowSource::NumberOf), as others may come to have its index.
  void NoteTaken(WindowIndex window, uint64_t number) { taken_.emplace(window, number); }
  // Its answer for the oldest of that index: the number. None: a client may answer what it was not asked.
  std::optional<uint64_t> AnswerTaken(WindowIndex window) {
    const auto taken = taken_.lower_bound(window);
    if (taken == taken_.end() || taken->first != window) return std::nullopt;
    const uint64_t number = taken->second;
    taken_.erase(taken);
    silent_ = false;
    return number;
  }

  void Announce(WindowIndex window) {
    TIER_CHECK(!maps(window), "window {} is announced twice", tier::Value(window));
    mapped_.Add(window);
  }
  // REQUIRES: the window was asked back, and its deadline was missed once.
  void MissDeadline(WindowIndex window) { overdue_ += maps(window) ? 1 : 0; }
  // `overdue`: MissDeadline was called for it.
  void Return(WindowIndex window, bool overdue) {
    TIER_CHECK(maps(window) && (!overdue || overdue_ != 0), "window {} is returned, {} windows are overdue",
               tier::Value(window), overdue_);
    mapped_.Remove(window);
    overdue_ -= overdue ? 1 : 0;
  }
  // The client is gone. REQUIRES: windows that were asked back are returned.
  void Clear() {
    TIER_CHECK(overdue_ == 0, "{} windows are overdue", overdue_);
    mapped_.Clear();
  }

 private:
  WindowSet mapped_;
  std::multimap<WindowIndex, uint64_t> taken_;  // Their numbers; of one index the oldest first.
  uint32_t overdue_ = 0;
  bool silent_ = false;
};

// Shared tensors that it creates. Those that it no longer creates leave the list when they are more than the others:
// the list is never longer than kStaleMin + 2 × the tensors that it creates.
class SessionCreations {
 public:
  bool empty() const { return tensors_.empty(); }

  // `count`: tensors that it creates now, with this one. `creates`: whether it creates a tensor still.
  template <typename Creates>
  void Add(TensorRef tensor, uint32_t count, const Creates& creates) {
    if (tensors_.size() >= kStaleMin + 2 * uint64_t{count}) {
      std::erase_if(tensors_, [&](TensorRef other) { return !creates(other); });
      TIER_CHECK(tensors_.size() < count, "{} tensors are being created, and one more: not {}", tensors_.size(), count);
    }
    tensors_.push_back(tensor);
  }
  // Perhaps one that it creates no more.
  TensorRef TakeNewest() {
    TIER_CHECK(!tensors_.empty(), "no tensor of {} is left", tensors_.capacity());
    const TensorRef newest = tensors_.back();
    tensors_.pop_back();
    return newest;
  }

 private:
  static constexpr uint64_t kStaleMin = 64;
  std::vector<TensorRef> tensors_;
};

class SessionListing;

// The lists of a job's sessions that stand at a tensor: one that leaves its namespace moves them on.
class JobListings {
 public:
  const std::vector<SessionListing*>& at_tensors() const { return at_tensors_; }

 private:
  friend class SessionListing;
  std::vector<SessionListing*> at_tensors_;  // In any order.
};

// The list of all its tensors that one of its requests makes, turn by turn (requests/enumeration.h).
class SessionListing {
 public:
  explicit SessionListing(JobListings& of_job) : of_job_(of_job) {}

  uint64_t waiter() const { return waiter_; }     // Whose list it is; 0: no request lists.
  TensorIndex cursor() const { return cursor_; }  // The tensor that is listed next.

  void Start(uint64_t waiter) {
    TIER_CHECK(waiter_ == 0 && waiter != 0, "request {} lists while {} does", waiter, waiter_);
    waiter_ = waiter;
  }
  // REQUIRES: a request lists, or there is no next tensor.
  void MoveTo(TensorIndex next) {
    TIER_CHECK(waiter_ != 0 || next == kNoTensor, "no request lists tensor {}", Value(next));
    const bool stood = std::exchange(cursor_, next) != kNoTensor;
    if (!stood && next != kNoTensor) {
      place_ = of_job_.at_tensors_.size();
      of_job_.at_tensors_.push_back(this);
    } else if (stood && next == kNoTensor) {
      SessionListing* const last = of_job_.at_tensors_.back();
      of_job_.at_tensors_[last->place_ = place_] = last;
      of_job_.at_tensors_.pop_back();
    }
  }
  void End() {
    TIER_CHECK(waiter_ != 0, "no request lists, and the cursor is {}", Value(cursor_));
    MoveTo(kNoTensor);
    waiter_ = 0;
  }

 private:
  JobListings& of_job_;
  uint64_t waiter_ = 0;
  TensorIndex cursor_ = kNoTensor;
  size_t place_ = 0;  // In of_job_, while there is a cursor.
};

}  // namespace tier::tiering
