// Where a daemon without configuration puts its sockets and its data. Pure over the environment it is given, so that a
// test decides what that is.
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
  static DaemonEnvironment OfProcess();
};

struct DaemonPaths {
  std::string socket_directory;
  std::string data_directory;  // Where the SSD tier's file lies, named or not.
  bool persistent = true;      // False: a private daemon that was given no data directory keeps nothing.
};

// INVALID when neither configuration nor environment says where.
Result<DaemonPaths> ChoosePaths(const config::DaemonConfig& config, const DaemonEnvironment& environment);

}  // namespace tier
