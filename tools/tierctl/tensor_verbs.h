// The verbs of a job's tensors. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

int ListTensors(const DaemonOptions& options, const std::string& job, uint32_t max);
int ShowTensor(const DaemonOptions& options, const std::string& job, const std::string& id_or_key);

}  // namespace tier::tierctl
