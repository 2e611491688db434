// ForcedReturnState: since when which jobs have been owed memory within their promise, when forced return is checked
// next, and how often it was used (jobs/forced_return.h); which jobs' processes keep windows that were taken from them
// (jobs/kept_windows.h). Engine thread only. At most one entry a job.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/bound_count.h"
#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {

struct OwedJob {
  JobId id{};
  base::TimePoint since;
  base::TimePoint seen;      // The last time that it was owed.
  base::TimePoint tried;     // The last time that no session was found whose end serves it, or one was ended for it.
  uint64_t held = 0;         // What it held then.
  bool within_user = false;  // Then other jobs of its user took up their quota.
  bool of_leases = false;    // Then it was kept from leases within its promise, by those of other jobs.
};

struct Keeper {
  JobId job{};
  uint64_t bytes = 0;       // Of windows, in the last look …
  uint64_t long_bytes = 0;  // … and of those that were taken from it long ago.
  bool told = false;
};

class ForcedReturnState {
 public:
  std::vector<OwedJob>& jobs() { return jobs_; }  // In no order.
  const std::vector<OwedJob>& jobs() const { return jobs_; }
  bool any() const { return !jobs_.empty(); }

  base::TimePoint next_at() const { return next_at_; }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }

  BoundCount& bound_count() { return bound_count_; }
  JobId counted_for() const { return counted_for_; }  // While the count is under way: the job that is owed.
  void BeginCount(JobId owed, std::vector<SessionId> sessions) {
    counted_for_ = owed;
    bound_count_.Begin(std::move(sessions));
  }

  std::vector<Keeper>& keepers() { return keepers_; }
  void SetKept(uint64_t bytes, uint64_t refilled_bytes) {
    kept_bytes_ = bytes;
    refilled_bytes_ = refilled_bytes;
  }
  uint64_t kept_bytes() const { return kept_bytes_; }  // Of all windows that processes keep, in the last look, …
  uint64_t refilled_bytes() const { return refilled_bytes_; }  // … and what was found in them.
  // The session's process is to be killed. False: so it was before.
  bool NoteKilled(SessionId session) {
    if (std::ranges::find(killed_, session) != killed_.end()) return false;
    if (killed_.size() == kKilledMax) killed_.erase(killed_.begin());
    killed_.push_back(session);
    return true;
  }

  void Count(ForcedReturnKind kind) { ++counts_[static_cast<size_t>(kind)]; }
  const ForcedReturnCounts& counts() const { return counts_; }

 private:
  static constexpr size_t kKilledMax = 1024;

  std::vector<OwedJob> jobs_;
  std::vector<Keeper> keepers_;
  std::vector<SessionId> killed_;  // The last ones.
  uint64_t kept_bytes_ = 0;
  uint64_t refilled_bytes_ = 0;
  base::TimePoint next_at_;
  BoundCount bound_count_;
  JobId counted_for_{};
  ForcedReturnCounts counts_{};
};

}  // namespace tier::tiering
