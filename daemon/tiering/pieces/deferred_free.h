// Graveyard: namespaces of sessions and jobs that are gone, and freed tensors of very many pieces. Nobody can name them
// any more, and there may be millions: they are freed a bounded number in each turn. Engine thread only.
//
// Until a tensor's turn comes it is like any other in the books of its job, which stays until its graves are empty. Its
// memory counts as coming.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The list becomes a grave of its job, and is freed as far as this turn allows. Leases on it are the
// dead's own.
void QueueFree(Tables& tables, JobState& job, TensorSlot* head, uint64_t space);
// Once a turn: goes on with all graves, those of each job for its part.
void ContinueFrees(Tables& tables);

}  // namespace tier::tiering
