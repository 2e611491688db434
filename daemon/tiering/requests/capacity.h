// Capacity: why a new tensor cannot be created, also after a wait, or a guarantee given. Engine thread only.
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
  uint64_t replaced_pages = 0;  // Of the tensor whose place it takes.
};
// The job may not have it beside `pages_held` of its other tensors. None: it may. What takes no more than it replaces
// always fits, also where devices hold less than they did.
std::optional<Refusal> CapacityRefusal(Tables& tables, const JobState& job, const Wanted& wanted, uint64_t pages_held);
// Extents of so many pages would stay with the job's manifest while the tensor is written again, and SSD has no room
// for both. None: it has, or the job may keep all of its tensors in RAM.
std::optional<Refusal> SecondGenerationRefusal(const Tables& tables, const JobState& job, uint64_t tensor,
                                               uint64_t pages);
// The same for write leases on these items.
std::optional<Refusal> RewriteRefusal(Tables& tables, const JobState& job, std::span<const WaitItem> items);
// The tensors that wait to replace others of the job would, with this one, exceed all that the job may hold: some would
// be replaced several times over, and each costs the daemon memory for its pieces. None: they would not.
std::optional<Refusal> QueueRefusal(const Tables& tables, const JobState& job, const Wanted& wanted);
// May the job be guaranteed so much RAM beside what tensors of other jobs take of it for as long as they live, where
// SSD devices hold less? `job`: kNoEntitlement for a new one. NO_MEMORY with figures.
Status AdmitBesideTensors(const Tables& tables, EntitlementIndex job, uint64_t guarantee_bytes);

}  // namespace tier::tiering
