#include "daemon/host_limits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/memory/numa_nodes.h"
#include "daemon/session/process_end.h"

namespace tier {

Result<memory::ArenaSizes> ArenaSizesOn(const memory::HostReading& host, const config::ArenaConfig& arena) {
  const uint64_t memory = host.memory_limit();
  return memory::ArenaSizing({.max_bytes = arena.maximum.Of(memory),
                              .window_bytes = arena.window_size,
                              .host_reserve_bytes = arena.host_reserve.Of(memory),
                              .min_bytes = arena.minimum.Of(memory)},
                             host);
}

// The kernel would refuse each window, in the middle of a training step. Where it does not tell, all may be there.
Status CheckNumaNode(int64_t node) {
  const std::vector<int> nodes = memory::ReadMemoryNodes("/");
  if (node < 0 || nodes.empty() || std::ranges::find(nodes, node) != nodes.end()) return {};
  return Fail(Code::kInvalid, fmt::format("arena.numa_node is {}, and this host has memory at {}: {}", node,
                                          nodes.size() == 1 ? "node" : "nodes", fmt::join(nodes, ", ")));
}

// A private daemon serves its own user.
Status CheckRightToEnd(const config::Config& config, bool may_end_others) {
  if (!config.jobs.kills_keepers() || config.daemon.is_private || may_end_others) return {};
  return Fail(
      Code::kDenied,
      "jobs.on_unreturned is \"kill\", and this process may not end those of other users: it needs CAP_KILL; under "
      "systemd copy /usr/share/tierd/systemd/kill.conf to /etc/systemd/system/tierd.service.d/ and run systemctl "
      "daemon-reload");
}

Status CheckHostLimits(const config::Config& config) {
  if (Status right = CheckRightToEnd(config, session::MayEndOthers()); !right) return right;
  const auto host = memory::ReadHost();
  if (!host) return std::unexpected(host.error());
  const auto sizes = ArenaSizesOn(*host, config.arena);
  if (!sizes) return std::unexpected(sizes.error());
  return CheckNumaNode(config.arena.numa_node);
}

}  // namespace tier
