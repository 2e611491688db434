// Holds: the pins and claims that a waiting request has on the pieces that it names. Pins keep pieces in RAM while
// bytes are read; claims keep later requests from overtaking a writer. Engine thread only.
#pragma once

#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Pins the pieces of the request, and those of the tensor whose place it takes (requests/replace). Returns a piece that
// has as many pins as it can count: then none of the request's pieces is pinned.
std::optional<PieceId> PinAll(Tables& tables, Waiter& waiter);
void UnpinAll(Tables& tables, Waiter& waiter);
// Claims every piece for the waiter, which is a writer; called again, also those whose earlier claim has ended.
void ClaimAll(Tables& tables, Waiter& waiter);
void DropClaims(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
