// Graveyard: namespaces of sessions and jobs that are gone, and freed tensors of very many pieces. Nobody can name them
// any more, and there may be millions: they are freed a bounded number in each turn. Engine thread only.
//
// Until a tensor's turn comes it is like any other in the books of its job, which stays until its graves are empty. Its
// memory counts as coming.
#pragma once

#include <algorithm>

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Does the work of one of so many that are still to come with its part of what is left of the turn's burials, so that
// none keeps another from its own.
template <typename Work>
void SpendPart(Core& core, size_t count, Work work) {
  const auto part = std::max(static_cast<uint32_t>(core.free_budget / std::max<size_t>(count, 1)), 1u);
  const uint32_t kept = core.free_budget - std::min(core.free_budget, part);
  core.free_budget -= kept;
  work();
  core.free_budget += kept;
}

// The list becomes a grave of its job, and is freed as far as this turn allows. Leases on it are the
// dead's own.
void QueueFree(Core& core, JobState& job, TensorSlot* head, uint64_t space);
// Once a turn: goes on with all graves, those of each job for its part.
void ContinueFrees(Core& core);

}  // namespace tier::tiering
