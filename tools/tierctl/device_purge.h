// `device purge`: what jobs persisted on a missing device is given up for good. Shows first what that is.
#pragma once

#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Where jobs persisted something on it, only with `force`; without, it shows what would be given up, and refuses.
int PurgeDevice(const DaemonOptions& options, const std::string& uuid, bool force);

// The device, and the jobs that would lose what they persisted. `jobs` are all that the daemon tells an administrator.
std::string PurgePreview(const v1::MissingDevice& device, const v1::ListJobsResponse& jobs,
                         const OutputOptions& output);

}  // namespace tier::tierctl
