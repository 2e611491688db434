// Rollback: a write lease that ends without a seal. Engine thread only.
//
// Each piece reverts to its SSD copy, which has the bytes sealed last, or is torn where it has none. updates.h decides
// whether the reverted pieces still belong together with others that the session had sealed before.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The pieces of the lease revert or tear; those of a tensor that no request can name only stop being leased. The caller
// still has to end the lease. REQUIRES: exclusive.
void RevertLease(Tables& tables, const Lease& lease);

}  // namespace tier::tiering
