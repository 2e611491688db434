// What the configuration asks of this host that it may not have: memory, a NUMA node, a right of the process. A start,
// a reload and --check-config ask the same questions, so a file that passes the check is not refused by the others,
// unless the host, or the process that checks, is another one. Any thread.
#pragma once

#include <cstdint>

#include "daemon/config/config.h"
#include "daemon/memory/arena_sizing.h"
#include "daemon/memory/host_memory.h"
#include "proto/result.h"

namespace tier {

// INVALID: the arena cannot be so with the memory of `host`.
Result<memory::ArenaSizes> ArenaSizesOn(const memory::HostReading& host, const config::ArenaConfig& arena);
// INVALID: this host has memory, but not at that node. -1: any.
Status CheckNumaNode(int64_t node);
// DENIED: the configuration has other users' processes ended, and `may_end_others` says that this process may not.
Status CheckRightToEnd(const config::Config& config, bool may_end_others);
// All of them, for this process on this host as it is now.
Status CheckHostLimits(const config::Config& config);

}  // namespace tier
