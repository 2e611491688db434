// Byte counts as people read them, in refusals and logs: "5.9 GiB", "64 MiB", "512 bytes".
#pragma once

#include <cstdint>
#include <string>

namespace tier::base {

std::string FormatBytes(uint64_t bytes);

}  // namespace tier::base
