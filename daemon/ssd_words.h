// What logs and status say of the SSD tier. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/storage/ssd_tier.h"

namespace tier {

// Why there is none, or a smaller one; empty: it is as configured.
std::string SsdShortage(const storage::SsdTier& ssd);
std::string IoModeName(const storage::SsdTier& ssd);
std::string SsdModeName(storage::SsdMode mode);
// What never changes of it.
session::DeviceDescription Described(uint16_t index, const storage::SsdDeviceDescription& device);
// "device 0: /srv/tierd/tier.ssd (64 GiB, formatted now)"
std::string DeviceText(uint16_t index, const storage::SsdDeviceDescription& device);
// What the next start makes of the files where ssd.file_size is `file_size`: a sentence for each that it changes, or
// would have to shrink. No file is looked at, which may take long.
std::vector<std::string> NextSizeNotes(const storage::SsdTier& ssd, uint64_t file_size);
// All that is to be said of it at the start; then alone.
void LogSsdTier(const storage::SsdTier& ssd);

}  // namespace tier
