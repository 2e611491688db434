// DeviceDrain: a device is emptied. New extents go elsewhere (the store sees to that); live ones are read in where
// needed and written to another device, as far as room and the port allow, turn by turn. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void DrainDevices(Tables& tables);

}  // namespace tier::tiering
