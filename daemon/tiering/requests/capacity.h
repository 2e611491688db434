// Capacity: why a new tensor cannot be created, also after a wait. Engine thread only.
#pragma once

#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Bytes of tensors that the SSD devices which take extents can hold, of all jobs: without what manifests keep beside
// pieces, quarantined places, and one block of each device, so that a full device can still exchange pieces.
uint64_t StorageCapacity(const Tables& tables);

// The name is taken.
Refusal ExistsRefusal(const Tensor& present, uint64_t requested_bytes);
// A tensor that is asked for.
struct Wanted {
  uint64_t tensor = 0;
  uint64_t size = 0;
};
// The job may not have it beside `pages_held` of its tensors. None: it may.
std::optional<Refusal> CapacityRefusal(const Tables& tables, const JobState& job, const Wanted& wanted,
                                       uint64_t pages_held);
// The tensors that wait to replace others of the job would, with this one, exceed all that the job may hold: some would
// be replaced several times over, and each costs the daemon memory for its pieces. None: they would not.
std::optional<Refusal> QueueRefusal(const Tables& tables, const JobState& job, const Wanted& wanted);

}  // namespace tier::tiering
