// What logs and status say of the SSD tier. Any thread.
#pragma once

#include <string>

#include "daemon/storage/ssd_tier.h"

namespace tier {

// What differs from the usual tier; empty: nothing.
std::string SsdStatus(const storage::SsdTier& ssd);
std::string IoModeName(const storage::SsdTier& ssd);
std::string SsdModeName(storage::SsdMode mode);

}  // namespace tier
