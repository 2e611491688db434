// Capacity: why a new tensor cannot be taken in, whatever waits or not. Engine thread only.
#pragma once

#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The name is taken.
Refusal ExistsRefusal(const Tensor& present, uint64_t requested_bytes);
// A tensor that is asked for.
struct Wanted {
  uint64_t tensor = 0;
  uint64_t size = 0;
};
// RAM and SSD together have no room for it beside `pages_held` of the job's tensors. None: they do.
std::optional<Refusal> CapacityRefusal(const Tables& tables, const JobState& job, const Wanted& wanted,
                                       uint64_t pages_held);
// So much waits to replace tensors of the job that with this one it would be more than all of them may be: some are
// to be replaced several times over, at the price of their pieces in the daemon's memory. None: not so.
std::optional<Refusal> QueueRefusal(const Tables& tables, const JobState& job, const Wanted& wanted);

}  // namespace tier::tiering
