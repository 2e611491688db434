// Where a daemon without configuration puts its sockets and its data, and serves metrics. Pure over the environment it
// is given, so that a test decides what that is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "daemon/config/config.h"
#include "proto/result.h"

namespace tier {

struct DaemonEnvironment {
  uint32_t uid = 0;
  std::function<std::optional<std::string>(const char*)> variable;  // Absent and empty are the same.
  std::function<bool(const char*)> owns;                            // This user has that directory.
  std::function<bool(const std::string&)> may_write;                // In it, and in what is above where it is missing.
  static DaemonEnvironment OfProcess();
};

struct DaemonPaths {
  std::string socket_directory;
  std::string data_directory;  // Where the SSD tier's file lies, named or not.
  bool persistent = true;      // False: a daemon that was given no place of its own for data keeps nothing.
};

// INVALID for a directory that is not an absolute path, or too long a one for sockets.
Result<DaemonPaths> ChoosePaths(const config::DaemonConfig& config, const DaemonEnvironment& environment);
// Its sockets lie where every user of the machine looks for them.
bool IsSystemsDaemon(const config::DaemonConfig& config, const DaemonPaths& paths);
// ADDRESS:PORT, where port 0 is any free one; empty: nowhere.
std::string ChooseMetricsAddress(const config::Config& config, const DaemonPaths& paths);

}  // namespace tier
