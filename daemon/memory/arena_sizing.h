// How large the arena may become, and in which windows: derived from the machine where the user said nothing, refused
// with figures where what was said cannot be. Pure.
//
// Windows have a size of a power of two from 2 MiB to the largest, which is max / 2048: so 2,048 to 4,095 of the
// largest are a full arena. A small window wastes little and costs as much as a large one: a descriptor, and an entry
// in io_uring's buffer table. So a window is a part of what its job holds, and there are at most kWindowsOfNode.
//
// The indices beyond one for each of the largest windows are spare. As they are used up, small windows are merged
// first, then the windows that jobs of 1 GiB and more start become larger, and at last those of smaller jobs do
// (WindowsWished). So there is an index for all of the memory that is left, and small jobs come last in waste.
#pragma once

#include <cstdint>

#include "daemon/memory/host_memory.h"
#include "daemon/memory/window_source.h"
#include "proto/result.h"

namespace tier::memory {

// Windows of a node, with those that are being closed. Only an arena that needs as many of 1 GiB has more.
inline constexpr uint32_t kWindowsOfNode = 8000;
// A window takes at most one part in so many of what its job holds of its kind, while there are spare indices.
inline constexpr uint64_t kWindowsHeld = 256;
// Jobs that hold less keep small windows to the last.
inline constexpr uint64_t kSmallJob = kGiB;

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
  uint32_t windows_aimed = 0;  // So many windows at most make a full arena, where jobs go by WindowsWished.
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

struct WindowsInUse {  // Without those that are made ahead of need: these give way to smaller ones.
  uint32_t count = 0;
  uint64_t bytes = 0;
};

// The sizes of windows of a job in an arena that has these windows now.
WindowWishes WindowsWished(const ArenaSizes& sizes, const WindowsInUse& used, const WindowHolder& job);

}  // namespace tier::memory
