// Holds: what a waiting request keeps of the pieces that it names. Pins keep them in RAM while bytes are read; claims
// keep later requests from overtaking a writer. Engine thread only.
#pragma once

#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Pins the pieces of the request, and those of the tensor whose place it takes (requests/replace). Else no piece of the
// request is pinned: the piece that it gives has as many pins as it can count.
std::optional<PieceId> PinAll(Tables& tables, Waiter& waiter);
void UnpinAll(Tables& tables, Waiter& waiter);
// Claims every piece for the waiter, which is a writer; again those of which another's claim went.
void ClaimAll(Tables& tables, Waiter& waiter);
void DropClaims(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
