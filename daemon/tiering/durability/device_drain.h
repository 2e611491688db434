// DeviceDrain: a device is emptied. The store places new extents elsewhere; pieces with live extents there are read in
// where needed and written to another device, turn by turn, as far as room and the port allow. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void DrainDevices(Tables& tables);

}  // namespace tier::tiering
