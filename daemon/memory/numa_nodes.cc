#include "daemon/memory/numa_nodes.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/memory/kernel_text.h"
#include "proto/handshake.h"
#include "proto/number_list.h"

namespace tier::memory {

std::vector<int> ReadMemoryNodes(const std::string& host_root) {
  const auto text = ReadText(host_root + "/sys/devices/system/node/has_memory");
  const auto numbers = text ? proto::ParseNumberList(*text) : std::nullopt;
  std::vector<int> nodes;
  for (const uint32_t number : numbers.value_or(std::vector<uint32_t>())) {
    if (number < proto::kNumaNodesMax) nodes.push_back(static_cast<int>(number));
  }
  std::ranges::sort(nodes);
  return nodes;
}

NumaNodes::NumaNodes(int configured, std::vector<int> with_memory)
    : configured_(configured), nodes_(std::move(with_memory)) {
  TIER_CHECK(configured_ >= kAnyNode && configured_ < proto::kNumaNodesMax, "node {}", configured_);
  TIER_CHECK(std::ranges::is_sorted(nodes_), "the first of {} nodes is {}", nodes_.size(), nodes_.front());
}

NodeChoice NumaNodes::For(int wished) const {
  if (configured_ != kAnyNode) return {.node = configured_, .only = true};
  // The kernel refuses to prefer a node that has no memory.
  if (!chosen() || !std::ranges::binary_search(nodes_, wished)) return {};
  return {.node = wished};
}

NodeChoice NumaNodes::ForStock() {
  if (!chosen()) return For(kAnyNode);
  return {.node = nodes_[next_++ % nodes_.size()]};
}

}  // namespace tier::memory
