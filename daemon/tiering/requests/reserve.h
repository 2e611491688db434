// Reserve: room and bytes for a request that nothing conflicts with any more. Engine thread only.
#pragma once

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/room.h"

namespace tier::tiering {

// Gives room to every piece that lacks it, and starts their reads: true. Or there is not enough room for all of them,
// and none gets any: false. So two requests never hold half of what each needs. REQUIRES: the pieces are pinned.
// Pieces that are leased for the first time are made.
void AddPieces(Tables& tables, const Ask& ask);
bool Reserve(Tables& tables, const Ask& ask);

// Whether the job's leases, with these, still fit what no other job is guaranteed. Else it waits as for room: what lies
// in lent memory could not be had back.
bool LeasesFit(const Tables& tables, const Ask& ask);

}  // namespace tier::tiering
