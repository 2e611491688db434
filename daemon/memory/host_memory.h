// What the host can spare: /proc/meminfo, the limits of our cgroups (v1 and v2, every level up to the root), and memory
// pressure (PSI). Everything is read beneath a root path, so that tests bring their own /proc and /sys.
//
// Any thread. A reading costs some 100 µs.
#pragma once

#include <cstdint>
#include <string>

#include "proto/result.h"

namespace tier::memory {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct HostReading {  // Bytes, where nothing else is said.
  uint64_t memory_total = 0;
  uint64_t memory_available = 0;           // What the kernel could give without swapping.
  uint64_t cgroup_limit = kUnlimited;      // The tightest limit above us.
  uint64_t cgroup_available = kUnlimited;  // What the tightest group could still give, reclaimable cache counted.
  uint64_t huge_page_size = 0;             // 0: the kernel has no huge pages.
  uint64_t huge_pages_free = 0;            // Count; reserved ones taken off.
  double pressure_some_avg10 = 0;          // % of the last 10 s in which some task waited for memory.
  double pressure_full_avg10 = 0;          // … in which all of them did.
  bool pressure_known = false;             // False: the kernel has no PSI.

  // What may be had by this process: the machine's memory or its cgroup's, whichever is less.
  uint64_t memory_limit() const { return cgroup_limit < memory_total ? cgroup_limit : memory_total; }
  uint64_t available() const { return cgroup_available < memory_available ? cgroup_available : memory_available; }
};

// IO_ERROR, naming the file, when /proc/meminfo cannot be read or lacks what is needed. Absent cgroup files and PSI are
// no errors: there is no limit then, and no pressure known.
Result<HostReading> ReadHost(const std::string& root = "/");

}  // namespace tier::memory
