// What --check-config finds out about this host: whether the paths that the configuration names can be what they are to
// be. Nothing is opened, made or written, so a daemon may run meanwhile. Thread-safe.
#pragma once

#include "daemon/config/config.h"
#include "daemon/daemon_paths.h"
#include "proto/result.h"

namespace tier {

// Said after a check that found nothing.
inline constexpr char kNotChecked[] =
    "not checked, but at the start: rights, room on disks, memory, huge pages, NUMA nodes, and whether sockets, "
    "devices "
    "and the metrics address are free";

// The first path that cannot serve, with the option that names it and the reason.
Status CheckHostPaths(const config::Config& config, const DaemonPaths& paths);

}  // namespace tier
