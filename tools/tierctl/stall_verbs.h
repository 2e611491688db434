// The verb of stalls: asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {

// Requests of the job that wait or waited: the newest first, or the longest.
int ShowStalls(const DaemonOptions& options, const std::string& job, bool longest);

void SortLongestFirst(v1::ListStallsResponse* answer);
std::string RenderStalls(const v1::ListStallsResponse& answer, const OutputOptions& output);

}  // namespace tier::tierctl
