// The proof of the engine's books, for tests and simulations. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Recounts everything from the pieces up, and aborts with the figures if any of what engine.h promises does not hold.
// O(everything).
void CheckInvariants(const Tables& tables);

}  // namespace tier::tiering
