// The quarantined places of a device, as the index keeps them: pages where writes failed twice while others succeeded.
// It saves the next daemon from finding them out again; no tensor depends on it.
//
//   QuarantineHeader, then run_count × QuarantineRun
//
// Integers are little-endian; reserved fields are zero and checked. A record of another version is not read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tier::proto {

inline constexpr uint64_t kQuarantineMagic = 0x5241555152454954;  // "TIERQUAR"
inline constexpr uint32_t kQuarantineVersion = 1;

struct QuarantineHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // CRC32C of the whole record with this field zero.
  uint32_t run_count;
  uint32_t reserved;
};

struct QuarantineRun {
  uint64_t first_page;  // Page of 4 KiB in the device's data area.
  uint32_t pages;       // 1 … 512, within one block.
  uint32_t reserved;
};

static_assert(sizeof(QuarantineHeader) == 24 && offsetof(QuarantineHeader, crc) == 12);
static_assert(sizeof(QuarantineRun) == 16 && offsetof(QuarantineRun, pages) == 8);

}  // namespace tier::proto
