// What the kernel says of this process, for the metrics that monitoring expects of every program.
#pragma once

#include <cstdint>
#include <string>

namespace tier::metrics {

struct ProcessFigures {
  double cpu_seconds = 0;         // User and system time of all threads.
  double start_time_seconds = 0;  // Of the Unix epoch.
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;  // ~0: no limit.
  uint64_t threads = 0;
};

// Reads /proc under `root` ("" for the host's own). What cannot be read is 0. Any thread.
ProcessFigures ReadProcessFigures(const std::string& root = {});

}  // namespace tier::metrics
