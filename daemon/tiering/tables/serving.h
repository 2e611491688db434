// Serving: the request that is served beyond its job's promise (memory/stalled), or the last one that was. Engine
// thread only.
#pragma once

#include <cstdint>

#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

class Serving {
 public:
  bool any() const { return job_ != JobId{}; }
  JobId job() const { return job_; }
  // The number of that request, or of the last one while none is served.
  uint64_t waiter() const { return waiter_; }
  base::TimePoint until() const { return until_; }
  void Begin(JobId job, uint64_t waiter, base::TimePoint until) {
    job_ = job;
    waiter_ = waiter;
    until_ = until;
  }
  void End(base::TimePoint now) {
    job_ = JobId{};
    owed_since_ = now;
  }

  // Since then at least one job has been owed memory within its promise.
  base::TimePoint owed_since() const { return owed_since_; }
  void NoteNobodyOwed(base::TimePoint now) { owed_since_ = now; }

 private:
  JobId job_{};
  uint64_t waiter_ = 0;
  base::TimePoint until_;
  base::TimePoint owed_since_;
};

}  // namespace tier::tiering
