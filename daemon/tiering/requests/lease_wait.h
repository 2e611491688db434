// LeaseWait: requests for leases, and frees, that wait: what each attempt finds, and where the request waits next.
// Engine thread only.
//
// An attempt first checks for conflicts. Where there are none it reserves room for all of the request, and then reads
// its bytes. Room is given in the order of arrival, with one exception: a session that holds leases may pass requests
// that are short of room, as it may need more leases before it can end those that it holds, and others may wait for
// these. It may not pass a request that has waited for half of its time, which would else never be served.
#pragma once

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

// kReady: to be granted now. kWaits: the WaitTable says where. REQUIRES: running; a create or acquire. `known`: the
// result of a check just made, so that it is not made twice.
Outcome AdvanceLease(Tables& tables, Waiter& waiter, const ConflictCheck* known = nullptr);
// One attempt of a free: kReady means that no lease of the tensors is left.
Outcome AdvanceFree(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
