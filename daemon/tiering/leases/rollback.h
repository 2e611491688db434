// Rollback: a write lease that ends without a seal. Engine thread only.
//
// Each piece goes back to its SSD copy, which is what was sealed last, or is torn where it has none. Whether what goes
// back still fits what the session had sealed before is not asked here: see updates.h.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Its pieces go back or tear; of a tensor that nobody can name they only stop being leased. The lease is still to be
// ended. REQUIRES: exclusive.
void RevertLease(Tables& tables, const Lease& lease);

}  // namespace tier::tiering
