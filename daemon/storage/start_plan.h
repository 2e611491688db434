// What a start would make of its devices, told without one: by the code of the start itself, with a plan of the space.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/storage/ssd_tier_options.h"
#include "proto/result.h"

namespace tier::storage {

// Refusals as SsdTier::Open, but those of rights, of locks and of the room for the index. Or sentences on what is no
// mistake: devices that it would do without, files that grow or cannot, and what this user may not read. A daemon may
// have the devices and the index meanwhile. REQUIRES: no private files.
Result<std::vector<std::string>> PlanStart(const SsdTierOptions& options);

// Bytes of the index in `data_dir` after a start: so much of the disk is allocated, and as much is mapped, which is
// page cache as far as it is used. It grows with what jobs persist.
uint64_t IndexBytes(const std::string& data_dir);

}  // namespace tier::storage
