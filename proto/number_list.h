// The kernel's lists of processors and NUMA nodes: "0-3,8,10-11", as sysfs has them. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tier::proto {

// Processors and nodes have numbers below this: more than any kernel knows.
inline constexpr uint32_t kListedNumbersMax = 8192;

// The numbers, as they stand there; a newline may follow them. An empty list has none. Empty: this is no such list, or
// a number is not below kListedNumbersMax.
std::optional<std::vector<uint32_t>> ParseNumberList(std::string_view text);

}  // namespace tier::proto
