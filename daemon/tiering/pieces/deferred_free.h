// Deferred free: namespaces of ended sessions and jobs, freed tensors of very many pieces, and the records of updates
// that have ended together. No request can name these tensors any more, none asks for these records, and there may be
// millions: a bounded number is freed in each turn. Engine thread only.
//
// Until a tensor is freed it is like any other in the books of its job, which stays until its pending frees are done.
// Its memory counts as coming.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Adds the list to the pending frees of its job, and frees as much of it as this turn allows. Leases on its tensors are
// those of the ended session.
void QueueFree(Tables& tables, JobState& job, TensorIndex* head, uint64_t space);
// What the job's requests have freed, as far as this turn's work reaches: a request lacks room.
void FreeForRoom(Tables& tables, JobState& job);
// Once a turn: continues the pending frees of all jobs, each with an equal part of the work.
void ContinueFrees(Tables& tables);

}  // namespace tier::tiering
