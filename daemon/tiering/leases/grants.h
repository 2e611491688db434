// Grants: which session may touch which bytes. CheckConflicts says what blocks a request; Grant grants all of it;
// Release and EndLease end its leases. Engine thread only.
//
// Several items are granted all or nothing: no item is granted before all of them can be. Under a write lease the old
// SSD copy is the one to revert to; the seal makes that copy obsolete.
#pragma once

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {

// Grants leases and writes the reply. REQUIRES: CheckConflicts said kReady, and nothing changed since.
void Grant(Tables& tables, const Ask& ask);
// Bytes that the granted leases add to the user's metadata.
uint64_t GrantCost(const Tables& tables, const Ask& ask);
// Ends a lease; a write lease is sealed, as the range `part` of a swap_out where that is given.
void Release(Tables& tables, LeaseIndex index, const SwapPart& part = {});
// Removes the lease without touching its pieces.
void EndLease(Tables& tables, LeaseIndex index);

}  // namespace tier::tiering
