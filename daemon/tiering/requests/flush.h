// Flush: writes to SSD what a request names, and for a persist hands it over to the manifests then. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Goes on with a flush or persist that waits: lists what it did not name, starts writes some pieces ahead, moves its
// cursor over what is written, as far as the turn's looks reach.
Outcome AdvanceFlush(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
