#include "daemon/base/format_bytes.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "proto/units.h"

namespace tier::base {

std::string FormatBytes(uint64_t bytes) {
  using Unit = std::pair<uint64_t, std::string_view>;
  for (const auto& [size, name] : {Unit{kGiB * 1024, "TiB"}, Unit{kGiB, "GiB"}, Unit{kMiB, "MiB"}, Unit{kKiB, "KiB"}}) {
    if (bytes < size) continue;
    // One decimal where it says something: 64 MiB, not 64.0 MiB.
    if (bytes % size == 0) return fmt::format("{} {}", bytes / size, name);
    return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(size), name);
  }
  return fmt::format("{} bytes", bytes);
}

}  // namespace tier::base
