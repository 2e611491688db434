// The two kinds of windows, and the address space in which clients map them.
#pragma once

#include <cstdint>

#include "proto/units.h"

namespace tier {

// What a window is for. Crosses processes.
enum class WindowKind : uint16_t {
  kBlock = 0,  // Whole blocks: in 2 MiB pages where the machine has them.
  kSlot = 1,   // Small tensors and tails, in runs of 4 KiB pages: always in small pages.
};
inline constexpr uint32_t kWindowKinds = 2;
// Clients reserve the address space of all windows, which is twice the arena.
inline constexpr uint64_t kAddressSpaceMax = 2 * kWindowsMax * kWindowSizeMax;

}  // namespace tier
