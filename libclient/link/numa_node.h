// Which NUMA node the memory of this process should come from, by what sysfs says of its GPU and its processors.
//
// Any thread. Reads small files; nothing that they say ends more than the search for a node.
#pragma once

#include <sched.h>

#include <optional>
#include <string>

namespace tier::link {

// Where a caller is, as far as it is known.
struct CallerPlace {
  std::string gpu;  // PCI address of its GPU, "0000:3b:00.0"; empty: it uses none.
  cpu_set_t processors{};
};

// The processors on which the calling thread may run. None where the system does not tell.
cpu_set_t AllowedProcessors();

// The node of the GPU, where it has one; else the node to which all of the processors belong. Empty: the processors
// belong to several nodes, there is only one node, or sysfs does not tell. `sysfs`: where sysfs is mounted.
std::optional<uint16_t> NodeOf(const CallerPlace& caller, const std::string& sysfs = "/sys");

}  // namespace tier::link
