// The families of SSD devices: space, traffic, how long requests take, wear, health.
#pragma once

#include <vector>

#include "daemon/metrics/family_builder.h"
#include "daemon/session/control_api.h"

namespace tier::metrics {

void AddDevices(FamilyBuilder& out, const session::DaemonDescription& daemon);

}  // namespace tier::metrics
