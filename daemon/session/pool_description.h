// What a caller may see of the pool. Pure; any thread.
#pragma once

#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/job_registry.h"
#include "daemon/tiering/api/pool_view.h"

namespace tier::session {

// A view of the pool, and the jobs that were open when it was taken.
struct PoolSnapshot {
  tiering::PoolView view;
  std::vector<Job> jobs;
};

// Names and figures of the jobs that the caller may see. All others are one owner, so that it does not show how many
// there are or whose they are.
PoolDescription PartOf(const PoolSnapshot& pool, const Caller& caller);

}  // namespace tier::session
