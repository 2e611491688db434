// What a start would make of its devices, told without one: by the code of the start itself, with a plan of the space.
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/storage/ssd_tier_options.h"
#include "proto/result.h"

namespace tier::storage {

// Refusals as SsdTier::Open, but those of rights, of locks and of the room for the index. Or sentences on what is no
// mistake: devices that it would do without, files that grow or cannot, and what this user may not read. A daemon may
// have the devices and the index meanwhile. REQUIRES: no private files.
Result<std::vector<std::string>> PlanStart(const SsdTierOptions& options);

}  // namespace tier::storage
