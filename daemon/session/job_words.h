// What events say of a job and its processes, in words. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/session/job_registry.h"
#include "daemon/tiering/api/snapshot.h"

namespace tier::session {

// "RAM guarantee 8 GiB, RAM limit none, SSD guarantee none, SSD limit none": what was asked for, and not what the job
// is promised by an equal part.
std::string TermsText(const tiering::JobCounters& has);
// ", process 4711", for a text that goes on; empty: the process is in a pid namespace that cannot be seen from here.
std::string ProcessText(int32_t client_pid);
// Of that session of the job; empty also where it is no member.
std::string ProcessText(const Job& job, tiering::SessionId session);
// " (rank 0, process 4711)", of a text of ProcessText; without what there is not. `rank` -1: it has none.
std::string AttachedText(int32_t rank, std::string_view process);

}  // namespace tier::session
