// Flush: writes to SSD what a request names; a persist is then handed to the manifests. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Continues a flush or persist that waits: lists the tensors that it did not name, starts writes some pieces ahead,
// moves its cursor over written pieces, as far as the turn's work reaches.
Outcome AdvanceFlush(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
