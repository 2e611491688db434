// DeviceWork: what the daemon does on its devices of its own accord: devices that are drained are emptied, of pieces of
// jobs and of manifests, and sparse blocks of the others rewritten. Engine thread only.
#pragma once

#include <optional>

#include "daemon/base/time.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void WorkOnDevices(Tables& tables);
// None: nothing is to be done before something else happens.
std::optional<base::TimePoint> NextDeviceWork(const Tables& tables);
bool AnyDeviceWork(const Tables& tables);  // Under way.

}  // namespace tier::tiering
