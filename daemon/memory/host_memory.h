// What the host can spare: /proc/meminfo, the limits of our cgroups, and memory pressure (PSI); and what this process
// takes for itself. Everything is read beneath a root path, so that tests bring their own /proc and /sys.
//
// Any thread. A reading costs some 100 µs.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/memory/cgroup_memory.h"
#include "daemon/memory/memory_stalls.h"
#include "proto/result.h"

namespace tier::memory {

struct HostReading {  // Bytes, where nothing else is said.
  uint64_t memory_total = 0;
  uint64_t memory_available = 0;  // What the kernel could give without swapping.
  uint64_t memory_free = 0;       // … without reclaiming anything.
  uint64_t huge_page_size = 0;    // 0: the kernel has no huge pages.
  uint64_t huge_pages_free = 0;   // Count; reserved ones taken off.
  uint64_t own_bytes = 0;         // Heap, tables, stacks and page tables of this process; not its windows.
  CgroupMemory cgroup;
  MemoryStalls stalls;  // Of all tasks of the machine.

  // What may be had by this process: the machine's memory or its cgroup's, whichever is less.
  uint64_t memory_limit() const { return cgroup.limit < memory_total ? cgroup.limit : memory_total; }
  uint64_t available() const { return cgroup.available < memory_available ? cgroup.available : memory_available; }
};

// IO_ERROR, naming the file, when /proc/meminfo cannot be read or lacks what is needed. Absent cgroup files and PSI are
// no errors: there is no limit then, and no pressure known.
Result<HostReading> ReadHost(const std::string& root = "/");

}  // namespace tier::memory
