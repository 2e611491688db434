// The verbs that ask a running daemon. Each prints its answer and returns an exit code; failures go to standard error
// as one sentence.
#pragma once

#include <cstdint>
#include <string>

#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

int ShowStatus(const DaemonOptions& options);
int ListDevices(const DaemonOptions& options);
int DrainDevice(const DaemonOptions& options, uint32_t device, bool undo);
int RetryDevice(const DaemonOptions& options, uint32_t device);
// Without a daemon at the usual places that of tierctl alone, with the places; one that was named, or may not be asked,
// is a failure.
int ShowVersion(const DaemonOptions& options);

}  // namespace tier::tierctl
