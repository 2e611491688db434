// Abandon: write leases that end without a seal while their session lives. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The holder of a write lease gives it up: its pieces go back or tear, and with them the update that it was part of; a
// tensor being created is freed.
void Abandon(Tables& tables, LeaseIndex index);

// Takes back an exclusive lease under which nothing was written: its session was never told of it, or says so. A
// creation by that lease is undone.
void CancelGrant(Tables& tables, LeaseIndex index);

}  // namespace tier::tiering
