// How large the arena may become, and in which windows: derived from the machine where the user said nothing, refused
// with figures where what was said cannot be. Pure.
//
// Windows have a size of a power of two from 2 MiB to the largest, which is max / 2048: so 2,048 to 4,095 of the
// largest are a full arena. A small window wastes little and costs as much as a large one: a descriptor, and an entry
// in io_uring's buffer table. A job asks for windows by what it holds (growth.h); the arena says from which size on
// they should be (SmallestWindow), so that the indices which are left are enough for all of the memory that is left.
#pragma once

#include <cstdint>

#include "daemon/memory/host_memory.h"
#include "proto/result.h"

namespace tier::memory {

struct ArenaRequest {               // Bytes; 0: derive.
  uint64_t max_bytes = 0;           // Default: a quarter of the memory this process may have.
  uint64_t window_bytes = 0;        // Of the largest window. Default: max / 2048 within 2 MiB … 1 GiB, a power of two.
  uint64_t host_reserve_bytes = 0;  // Default: a sixteenth of the memory, within 64 MiB … 16 GiB.
  uint64_t min_bytes = 0;           // What the arena keeps when the host is short; no default.
};

struct ArenaSizes {
  uint64_t max_bytes = 0;  // A multiple of window_size_max.
  uint64_t window_size_min = 0;
  uint64_t window_size_max = 0;
  uint32_t windows_aimed = 0;  // So many windows at most make a full arena, where jobs go by SmallestWindow.
  // Indices to have: some more, so that a window can be made while those before it are still being closed, and smaller
  // ones where a job may not have more.
  uint32_t windows_max = 0;
  uint64_t host_reserve_bytes = 0;
  bool reserve_is_derived = false;  // It shrinks with a limit that is lowered while the daemon runs.
  uint64_t min_bytes = 0;
  uint64_t usable_bytes = kUnlimited;  // The memory without the host reserve: for windows and the daemon's own tables.
  friend bool operator==(const ArenaSizes&, const ArenaSizes&) = default;
};

// The host reserve where none is configured.
uint64_t DerivedReserve(uint64_t memory_bytes);
// INVALID, with one sentence and figures, when the sizes cannot be.
Result<ArenaSizes> ArenaSizing(const ArenaRequest& request, const HostReading& host);

// The size from which on windows should be started now, in an arena that has so many windows of so many bytes. The
// smallest one while the half of the indices that small windows may use up is there; then it doubles, until only the
// largest ones are started. A power of two.
uint64_t SmallestWindow(const ArenaSizes& sizes, uint32_t windows, uint64_t bytes);

}  // namespace tier::memory
