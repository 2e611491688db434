// The verbs of a job's tensors. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <cstdint>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

struct TensorsAsked {
  uint32_t max = 1000;
  bool torn = false;  // Only those that a process left half changed.
};
int ListTensors(const DaemonOptions& options, const std::string& job, const TensorsAsked& asked);
int ShowTensor(const DaemonOptions& options, const std::string& job, const std::string& id_or_key);

// Leaves the torn ones of a whole list, at most `max` of them. True: there are more.
bool KeepTorn(v1::ListTensorsResponse* answer, uint32_t max);

}  // namespace tier::tierctl
