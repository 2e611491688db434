// How large the arena may become, and in which windows: derived from the machine where the user said nothing, refused
// with figures where what was said cannot be. Pure.
//
// Block windows: max / 4096, so that a full arena has 4,096 to 8,191 of them. Slot windows hold small tensors and
// tails; a job with a few of these holds one, so they are as small as the number of windows allows: each costs a
// descriptor and an entry in io_uring's buffer table, and an arena may come to hold nothing but slot windows. The
// smallest power of two of which 8,192 are the whole arena keeps their number within that of block windows: 2 MiB up to
// an arena of 16 GiB, then max / 8192 rounded up to a power of two, which is half of a block window or one block
// window.
#pragma once

#include <cstdint>

#include "daemon/memory/host_memory.h"
#include "proto/result.h"

namespace tier::memory {

struct ArenaRequest {               // Bytes; 0: derive.
  uint64_t max_bytes = 0;           // Default: a quarter of the memory this process may have.
  uint64_t window_bytes = 0;        // Of block windows. Default: max / 4096 within 2 MiB … 1 GiB, a power of two.
  uint64_t host_reserve_bytes = 0;  // Default: a sixteenth of the memory, within 64 MiB … 16 GiB.
};

struct ArenaSizes {
  uint64_t max_bytes = 0;  // A multiple of window_size.
  uint64_t window_size = 0;
  uint64_t slot_window_size = 0;  // A power of two, at most window_size.
  // Indices to have: those of an arena full of the smallest windows, and some more, so that a window can be made while
  // those before it are still being closed.
  uint32_t windows_max = 0;
  uint64_t host_reserve_bytes = 0;
  uint64_t usable_bytes = kUnlimited;  // The memory without the host reserve: for windows and the daemon's own tables.
  friend bool operator==(const ArenaSizes&, const ArenaSizes&) = default;
};

// INVALID, with one sentence and figures, when the sizes cannot be.
Result<ArenaSizes> ArenaSizing(const ArenaRequest& request, const HostReading& host);

}  // namespace tier::memory
