// The devices of the SSD tier, as the configuration names them: the start opens them, and --check-config looks at them.
// Any thread.
#pragma once

#include <vector>

#include "daemon/config/config.h"
#include "daemon/daemon_paths.h"
#include "daemon/storage/ssd_tier_options.h"
#include "proto/result.h"

namespace tier {

// None: ssd.devices is "none".
std::vector<storage::SsdDeviceOptions> SsdDevicesOf(const config::Config& config, const DaemonPaths& paths);

// INVALID: ssd.devices names one device twice, by whatever paths. A path that hangs is waited for a moment, and then
// the start is to find it out.
Status CheckDistinctDevices(const config::Config& config);

}  // namespace tier
