// ForcedReturnState: since when which jobs have been owed memory within their promise, when forced return is checked
// next, and how often it was used (jobs/forced_return.h). Engine thread only. At most one entry a job.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {

struct OwedJob {
  JobId id{};
  base::TimePoint since;
  base::TimePoint seen;  // The last time that it was owed.
  uint64_t held = 0;     // What it held then.
};

class ForcedReturnState {
 public:
  std::vector<OwedJob>& jobs() { return jobs_; }  // In no order.
  const std::vector<OwedJob>& jobs() const { return jobs_; }
  bool any() const { return !jobs_.empty(); }

  base::TimePoint next_at() const { return next_at_; }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }

  void Count(ForcedReturnKind kind) { ++counts_[static_cast<size_t>(kind)]; }
  const ForcedReturnCounts& counts() const { return counts_; }

 private:
  std::vector<OwedJob> jobs_;
  base::TimePoint next_at_;
  ForcedReturnCounts counts_{};
};

}  // namespace tier::tiering
