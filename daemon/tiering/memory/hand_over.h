// Hand-over: windows go from the jobs with the largest surplus to the jobs that are owed memory (ledger.h). Engine
// thread only.
//
// Only windows without leases are taken: empty windows first, then those with the fewest bytes in use, as many as the
// free pages of the job's other windows can take in, and then windows whose pieces can be evicted (emptying.h). They
// are found in an order that is kept as things change (tables/window_order.h). A window that its client does not return
// in time no longer counts as coming, and another job is asked; later it is taken (window_ownership.h). Leased memory
// is taken elsewhere (jobs/forced_return.h).
//
// Work of one call: one pass over the jobs, and as many windows and pieces as the turn's work reaches.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The least time between two searches for windows to hand over.
inline constexpr base::Duration kHandOverInterval = std::chrono::milliseconds(2);

// Empties and returns windows of jobs that hold more than they are promised, for those that are owed memory, and
// windows that were borrowed and are not backed by room on SSD any more.
void HandOver(Tables& tables);

}  // namespace tier::tiering
