// Lending: memory of idle jobs goes to a job that could use more than it is promised (growth.h, Borrow). Engine thread
// only.
//
// A job is idle that has no session; or no lease, no request that waits, and none that came within
// EngineOptions::idle_after. Only what SSD has as well is lent, and what is empty: nothing is written for that
// (emptying.h). A job that borrows keeps to the terms of all memory beyond its promise, so that it can go back. It does
// when its owner asks: a job below its promise is owed what it lacks (ledger.h).
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// When wishes are heard again after no idle job had memory to lend.
inline constexpr base::Duration kLendRetryInterval = std::chrono::seconds(1);

// Finds out which jobs are idle now. Work: one look at each job and at each session of those that seem to be.
void FindIdleJobs(Tables& tables);

}  // namespace tier::tiering
