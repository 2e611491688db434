// One look at the health of all devices: from the paths that are configured to the report for the daemon.
//
// What a device said before stays, with the time of then, where it does not answer now: one that fails must not take
// its warnings along. It stays until the device is not configured any more, is not there, or another one has its name.
// A device that fails or hangs hides no other one, not even behind the same path: all are asked at once, each on a
// thread of its own, and have the same time to answer. Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/storage/smart_file.h"
#include "proto/result.h"
#include "tools/smart/disks.h"
#include "tools/smart/log_page.h"

namespace tier::smart {

inline constexpr auto kAnswerLimit = std::chrono::seconds(20);  // For all paths together, and then for all devices.

// The first two are called on other threads, which may outlive the look: they own what they use, and are thread-safe.
struct LookParts {
  std::function<Result<DisksBehind>(const std::string& path)> disks_behind;  // Of a configured path.
  std::function<Result<LogPage>(const std::string& device)> read_page;       // Of "/dev/nvme0n1".
  std::function<void(const std::string& sentence)> warn;
  // Tests, in place of kAnswerLimit: whether those that have not answered yet are given up.
  std::function<bool(const std::vector<std::string>& unanswered)> gives_up{};
};

// By /sys and the kernel's ioctl. `warn` is the caller's.
LookParts PartsOfSystem(std::function<void(const std::string& sentence)> warn);

// `before`: the last report, empty where there is none. `now`: seconds of the Unix epoch. A path that cannot stand in
// the file, and one of which nothing is known, is left out with a warning.
storage::SmartReport Look(const std::vector<std::string>& paths, const storage::SmartReport& before, int64_t now,
                          const LookParts& parts);

}  // namespace tier::smart
