// The list of extents that a manifest names, stored beside it: a daemon that cannot read the manifest, because it is
// damaged or of a later format, still knows which pages must not be written.
//
//   ExtentListHeader, then run_count × ExtentListRun
//
// This format never changes and has no version: each daemon reads the lists of every other. What a later one has to say
// besides goes elsewhere. Integers are little-endian; reserved fields are zero and checked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tier::proto {

inline constexpr uint64_t kExtentListMagic = 0x5354584552454954;  // "TIEREXTS"

struct ExtentListHeader {
  uint64_t magic;
  uint64_t run_count;
  uint32_t crc;  // CRC32C of the runs, then of this header with this field zero.
  uint32_t reserved;
};

struct ExtentListRun {
  uint64_t first_page;  // Page of 4 KiB in the device's data area.
  uint32_t pages;       // Not zero.
  uint16_t device;
  uint16_t reserved;
};

static_assert(sizeof(ExtentListHeader) == 24 && offsetof(ExtentListHeader, crc) == 16);
static_assert(sizeof(ExtentListRun) == 16 && offsetof(ExtentListRun, pages) == 8);
static_assert(offsetof(ExtentListRun, device) == 12);

}  // namespace tier::proto
