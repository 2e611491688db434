// Refusals in words and figures: what was asked, what is there, what the limit is, who holds the rest. Engine thread
// only.
#pragma once

#include <optional>

#include "daemon/tiering/grants.h"

namespace tier::tiering {

// The name is taken.
Refusal ExistsRefusal(const Tensor& present, uint64_t requested_bytes);
// A tensor that is asked for.
struct Wanted {
  uint64_t tensor = 0;
  uint64_t size = 0;
};
// RAM and SSD together have no room for it beside `pages_held` of the job's tensors. None: they do.
std::optional<Refusal> CapacityRefusal(const Core& core, const JobState& job, const Wanted& wanted,
                                       uint64_t pages_held);
// So much waits to replace tensors of the job that with this one it would be more than all of them may be: some are
// to be replaced several times over, at the price of their pieces in the daemon's memory. None: not so.
std::optional<Refusal> QueueRefusal(const Core& core, const JobState& job, const Wanted& wanted);
// Nothing can be had because only the asking session's own leases stand in the way; lists them.
Refusal OwnLeasesRefusal(const Core& core, const SessionState& session, uint64_t tensor);
// A lease of somebody else, an unsealed tensor or a transfer stood in the way to the end.
Refusal BlockedRefusal(const Core& core, const Ask& ask, const Examination& at);
// No room in RAM.
Refusal NoMemoryRefusal(const Core& core, const JobState& job, uint64_t requested_bytes);
// No room in RAM because nothing could be written out.
Refusal WriteFailureRefusal(const Core& core, const JobState& job, uint64_t requested_bytes);
// What a waiter hears when its deadline passes.
Refusal DeadlineRefusal(Core& core, const Waiter& waiter);

}  // namespace tier::tiering
