// Deferred free: namespaces of sessions and jobs that are gone, and freed tensors of very many pieces. Nobody can name
// them any more, and there may be millions: they are freed a bounded number in each turn. Engine thread only.
//
// Until a tensor's turn comes it is like any other in the books of its job, which stays until its pending frees are
// done. Its memory counts as coming.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The list joins the pending frees of its job, and is freed as far as this turn allows. Leases on its tensors are those
// of the session that is gone.
void QueueFree(Tables& tables, JobState& job, TensorIndex* head, uint64_t space);
// Once a turn: goes on with the pending frees of all jobs, of each for its part.
void ContinueFrees(Tables& tables);

}  // namespace tier::tiering
