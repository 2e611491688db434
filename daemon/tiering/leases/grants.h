// Grants: who may touch what. CheckConflicts says what stands in the way of a request; Grant gives it, whole; EndLease
// and Seal take it back. Engine thread only.
//
// Several items are granted all or nothing: nothing is held before everything can be. A write lease makes the old SSD
// copy the place it would revert to; the seal makes that copy obsolete.
#pragma once

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {

// Grants leases and writes the reply. REQUIRES: examined, kReady, nothing changed since.
void Grant(Tables& tables, const Ask& ask);
// What the granted leases add to the user's metadata.
uint64_t GrantCost(const Tables& tables, const Ask& ask);
// Ends a lease; a write lease is sealed, as a range of that swap_out.
void Release(Tables& tables, LeaseIndex index, const SwapPart& part = {});
// Forgets the lease without touching its pieces.
void EndLease(Tables& tables, LeaseIndex index);

}  // namespace tier::tiering
