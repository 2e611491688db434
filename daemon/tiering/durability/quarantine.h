// Quarantine: places of devices that are given up, kept over a restart. The store of manifests writes them down on its
// own thread; without a store they are found out again by each run. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// At start, after the stored manifests have taken their extents: a place that one of them names was written since it
// was quarantined, and is its own.
void LoadQuarantine(Tables& tables);
// Hands what has changed in this turn to the store.
void SaveQuarantine(Tables& tables);
// Its quarantined places are used again, the last of all; one that fails again is quarantined again.
void RetryQuarantined(Tables& tables, uint16_t device);

}  // namespace tier::tiering
