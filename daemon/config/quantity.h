// Quantities as people write them: "64GiB", "1.5 TB", "250ms", "25%". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/time.h"
#include "proto/result.h"

namespace tier::config {

// B, KiB, MiB, GiB, TiB, kB, MB, GB, TB; a whole number without a unit is bytes. INVALID says what was wrong and shows
// a right one.
Result<uint64_t> ParseSize(std::string_view text);
// ns, us, ms, s, min, h.
Result<base::Duration> ParseDuration(std::string_view text);
// In the largest unit that leaves nothing over: "24h", "10ms", "0s". ParseDuration reads it. REQUIRES: not negative.
std::string FormatDuration(base::Duration duration);
// "25%", 0 % to 100 %.
Result<double> ParseShare(std::string_view text);

}  // namespace tier::config
