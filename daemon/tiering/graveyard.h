// Graveyard: namespaces of sessions and jobs that are gone. Nobody can name their tensors any more, and a namespace may
// hold millions: they are freed a bounded number in each turn. Engine thread only.
//
// Until a tensor's turn comes it is like any other in the books of its job, which stays until its graves are empty. Its
// memory counts as coming; its records leave the index, as one range, after the last of the namespace.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

// The list becomes a grave of its job, and is freed as far as this turn allows. REQUIRES: no lease on any of it.
void Bury(Core& core, JobState& job, TensorSlot* head, uint64_t space);
// Once a turn: goes on with all graves.
void EmptyGraves(Core& core);

}  // namespace tier::tiering
