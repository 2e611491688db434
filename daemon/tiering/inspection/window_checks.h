// Window checks: the part of CheckInvariants about windows that leave their jobs, and about moves in RAM that empty
// them. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void CheckWindows(const Tables& tables);  // Aborts with figures. O(windows and moves).

}  // namespace tier::tiering
