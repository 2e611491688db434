// "1 job", "2 jobs": counts in sentences for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tier::base {

// `many`: where it is not `one` with an s behind it.
inline std::string Counted(uint64_t count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

}  // namespace tier::base
