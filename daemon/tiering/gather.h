// Gather: room and bytes for a request that nothing conflicts with any more; and flushes, which want the opposite.
// Engine thread only.
#pragma once

#include <span>

#include "daemon/tiering/grants.h"
#include "daemon/tiering/room.h"

namespace tier::tiering {

// What the pieces it asks for need that have no room yet.
Need NeedOf(const Core& core, const Ask& ask);
// Gives room to as many pieces as possible and starts their reads. True: every piece has room; what is missing comes by
// itself. REQUIRES: the pieces are pinned.
bool Gather(Core& core, const Ask& ask);

// Pages that leases of these items would hold beyond what is held now (JobState::held_pages); each piece counts once.
uint64_t NewlyHeldPages(const Core& core, std::span<const WaitItem> items);
// Whether the job's leases, with these, still fit what no other job is guaranteed. Else it waits as for room: what lies
// in lent memory could not be had back.
bool LeasesFit(const Core& core, const Ask& ask);

// Writes out what the waiter asked to be flushed, some pieces ahead. True: the waiter was answered and is gone.
bool AdvanceFlush(Core& core, WaiterList::iterator waiter);

}  // namespace tier::tiering
