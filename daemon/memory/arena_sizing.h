// How large the arena may become, and in which windows: derived from the machine where the user said nothing, refused
// with figures where what was said cannot be. Pure.
#pragma once

#include <cstdint>

#include "daemon/memory/host_memory.h"
#include "proto/result.h"

namespace tier::memory {

struct ArenaRequest {               // Bytes; 0: derive.
  uint64_t max_bytes = 0;           // Default: a quarter of the memory this process may have.
  uint64_t window_bytes = 0;        // Default: max / 4096 within 2 MiB … 1 GiB, rounded down to a power of two.
  uint64_t host_reserve_bytes = 0;  // Default: a sixteenth of the memory, within 64 MiB … 16 GiB.
};

struct ArenaSizes {
  uint64_t max_bytes = 0;  // A multiple of window_size.
  uint64_t window_size = 0;
  // Indices to have: those of a full arena, and some more, so that a window can be made while those before it are
  // still being closed.
  uint32_t windows_max = 0;
  uint64_t host_reserve_bytes = 0;
  friend bool operator==(const ArenaSizes&, const ArenaSizes&) = default;
};

// INVALID, with one sentence and figures, when the sizes cannot be.
Result<ArenaSizes> ArenaSizing(const ArenaRequest& request, const HostReading& host);

}  // namespace tier::memory
