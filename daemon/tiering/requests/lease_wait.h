// Requests for leases, and frees, that wait: what each look at one of them finds, and where it waits next. Engine
// thread only.
//
// A look first asks for conflicts. Where nothing conflicts it asks for room for all of the request, and then for its
// bytes. Room is given in the order of arrival, with one exception: a session that holds leases may pass those that are
// short of room, for it may have to take more before it can end what it holds, and others may wait for just that. It
// may not pass one that has waited for half of its time, which would never be served.
#pragma once

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

// kReady: to be granted now. kWaits: the WaitTable says where. REQUIRES: running; a create or acquire.
// `known`: what a check of it has just found, so that it is not made twice.
Outcome AdvanceLease(Tables& tables, Waiter& waiter, const ConflictCheck* known = nullptr);
// The same for a free: kReady means that nothing holds the tensors.
Outcome AdvanceFree(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
