// StorageCapacity: how many bytes of tensors the SSD devices can hold, of all jobs. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/tables.h"
#include "proto/units.h"

namespace tier::tiering {

// Without what manifests keep beside pieces, quarantined places, and one block of each device, so that a full device
// can still exchange pieces. A device that is offline counts whole, for it may come back: a job that frees a tensor and
// creates one of that size is not refused meanwhile. One that is drained or gone counts nothing that it does not hold.
uint64_t StorageCapacity(const Tables& tables);
// What manifests of the user's jobs, open or not, keep on SSD beside pieces.
inline uint64_t KeptBy(const Tables& tables, uint32_t uid) { return tables.manifests.unused().of(uid) * kPageSize; }

}  // namespace tier::tiering
