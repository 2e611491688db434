// A run of 4 KiB pages inside one 2 MiB block: where one piece of a tensor lies, in RAM or on a device.
#pragma once

#include <cstdint>

#include "proto/units.h"

namespace tier::base {

struct PageRun {
  uint32_t block = 0;  // In the number space of its pool: arena-wide in memory, device-wide on a device.
  uint16_t page = 0;   // First page within the block.
  uint16_t pages = 0;  // 1 … 512; 512 is a whole block. 0: no place.

  bool whole_block() const { return pages == kPagesPerBlock; }
  explicit operator bool() const { return pages != 0; }
  uint64_t offset_bytes() const { return uint64_t{block} * kBlockSize + uint64_t{page} * kPageSize; }
  uint64_t size_bytes() const { return uint64_t{pages} * kPageSize; }
  friend bool operator==(const PageRun&, const PageRun&) = default;
};
static_assert(sizeof(PageRun) == 8);

}  // namespace tier::base
