// Hand-over: windows go from the jobs with the largest surplus to the jobs that are owed memory (ledger.h). Engine
// thread only.
//
// Only windows without leases are taken: empty windows first, then those with the fewest bytes in use, as many as the
// free pages of the job's other windows can take in, and then windows whose pieces can be evicted (emptying.h). They
// are found in an order that is kept as things change (tables/window_order.h). A window that its client does not return
// in time no longer counts as coming, and another job is asked; later it is taken (window_ownership.h). Leased memory
// is taken elsewhere (jobs/forced_return.h).
//
// A debt of the host (ledger.h) is paid with windows too, kHostBatchBytes in one call: empty ones of any job first,
// then those that can be emptied, of the jobs that have most beyond their promises. Windows in huge pages stay: they
// would go to the kernel's pool. While no window can be had, another search follows after kHostRetryInterval.
//
// Where a job waits for its part of its user's quota, what the user's other jobs hold beyond theirs is taken in the
// same way (quota_parts.h), however much memory the arena has left.
//
// What a job wishes for is taken from idle jobs in the same way, but nothing is written for it (lending.h).
//
// Work of one call: one pass over the jobs, and as many windows and pieces as the turn's work reaches. While the host
// has a debt: four such passes at most.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The least time between two searches for windows to hand over.
inline constexpr base::Duration kHandOverInterval = std::chrono::milliseconds(2);
inline constexpr base::Duration kHostRetryInterval = std::chrono::milliseconds(50);
inline constexpr uint64_t kHostBatchBytes = 256 * kMiB;

// Empties and returns windows of jobs that hold more than they are promised, for those that are owed memory,
// windows that were borrowed and are not backed by room on SSD any more, or are beyond their job's part of a quota that
// another job waits for, and windows for the host. Returns when there
// is to be another call at the earliest.
base::TimePoint HandOver(Tables& tables);

}  // namespace tier::tiering
