// Abandon: write leases that end without a seal while their session lives. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The holder of a write lease gives it up: its pieces revert or tear, and the update that the lease was part of is
// broken; a tensor being created is freed.
void Abandon(Tables& tables, LeaseIndex index);

// Takes back an exclusive lease under which nothing was written: its session was never told of it, or says that it
// wrote nothing. A creation by that lease is undone.
void CancelGrant(Tables& tables, LeaseIndex index);

}  // namespace tier::tiering
