// The processes that are attached to jobs, and jobs that would lose what they have, in words.
#pragma once

#include <string>

#include "libclient/control/channel.h"

namespace tier::tierctl {

// Those of one job, each with its rank where it has one: "4711 (rank 0), 4712 (rank 1, stopped)". Without any: "none".
// That one is stopped, by a signal or a debugger, is said where the kernel tells it of a process of the job's user; a
// number that tierd has from another pid namespace may be another process here. `root`: before /proc.
std::string ProcessesText(const v1::Job& job, const std::string& root = "");
// Those of all jobs that have some: "1000/llama: 4711, 4712; 1001/gpt: 4713", of the first eight of them. Names of jobs
// are as their users chose them. Without any: "".
std::string AttachedText(const v1::ListJobsResponse& jobs, const std::string& root = "");
// Jobs that have tensors and have persisted nothing: "1000/llama (5 GiB), 1001/gpt (12 MiB)", of the first eight.
// Names as above. None: "".
std::string UnpersistedJobsText(const v1::ListJobsResponse& jobs);

}  // namespace tier::tierctl
