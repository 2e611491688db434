// CgroupMemory: what the control groups of this process, v1 and v2, every level up to the root, leave it. Everything is
// read beneath a root path. Any thread.
//
// A level binds by the least of memory.max and memory.high (v2), or by memory.limit_in_bytes (v1). Above memory.high
// the kernel slows down who allocates; above memory.max it kills. Levels that cannot be seen are passed over: in a
// container the path is often the host's, while only the own group is mounted, at the root. For v1 the own group's
// hierarchical_memory_limit then still says what binds.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/memory/memory_stalls.h"

namespace tier::memory {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct CgroupMemory {                  // Bytes.
  uint64_t limit = kUnlimited;         // The tightest.
  uint64_t available = kUnlimited;     // What the level with least can still give, reclaimable cache counted.
  uint64_t excess = 0;                 // What a level holds beyond its limit, at most.
  uint64_t unused = kUnlimited;        // What the level with least can give before anything is reclaimed.
  uint64_t unused_limit = kUnlimited;  // The limit of that level.
  std::string tightest;                // "memory.high of /a/b": of `available`. Empty: there is no limit.
  std::string unreadable;              // The first file that is there and makes no sense; empty: none.
  MemoryStalls stalls;                 // Of the own group (v2).
};

// Absent files are no errors: nothing binds then.
CgroupMemory ReadCgroups(const std::string& root);

}  // namespace tier::memory
