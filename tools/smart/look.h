// One look at the health of all devices: from the paths that are configured to the report for the daemon. What a device
// said before stays, with the time of then, where it does not answer now: one that fails must not take its warnings
// along. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/storage/smart_file.h"
#include "proto/result.h"
#include "tools/smart/log_page.h"

namespace tier::smart {

struct LookParts {
  // Of a configured path, and of a disk behind it.
  std::function<Result<std::vector<std::string>>(const std::string& path)> disks_behind;
  std::function<Result<LogPage>(const std::string& disk)> read_page;
  std::function<void(const std::string& sentence)> warn;
};

// By /sys and the kernel's ioctl. `warn` is the caller's.
LookParts PartsOfSystem(std::function<void(const std::string& sentence)> warn);

// `before`: the last report, empty where there is none. `now`: seconds of the Unix epoch. A path that cannot stand in
// the file, and one of which nothing is known, is left out with a warning.
storage::SmartReport Look(const std::vector<std::string>& paths, const storage::SmartReport& before, int64_t now,
                          const LookParts& parts);

}  // namespace tier::smart
