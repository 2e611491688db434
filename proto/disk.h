// The layout of an SSD device, on which a later daemon, an older one and the tools agree.
//
//   0                    superblock, copy A (4 KiB)
//   512 KiB              superblock, copy B (4 KiB)
//   1 MiB                end of the label area; up to data_offset nothing is stored
//   2 MiB (data_offset)  the data area: blocks of 2 MiB, counted from 0; extents are runs of 4 KiB pages in it
//
// The two copies are written in turn, never both at once: the valid one with the larger commit number counts, so a torn
// write loses one commit and no more. All integers are little-endian; reserved bytes are zero and checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/units.h"

namespace tier::proto {

inline constexpr uint64_t kDiskMagic = 0x4b53494452454954;  // "TIERDISK"
inline constexpr uint32_t kDiskVersion = 1;
inline constexpr uint32_t kSuperblockSize = 4096;
inline constexpr uint64_t kSuperblockOffsets[2] = {0, 512 * kKiB};
inline constexpr uint64_t kLabelAreaSize = kMiB;       // Any byte here that is not ours means foreign content.
inline constexpr uint64_t kDiskDataOffset = 2 * kMiB;  // A whole block, so that extents keep the device's alignment.
inline constexpr uint64_t kDiskSizeMin = kDiskDataOffset + 16 * kBlockSize;
inline constexpr uint64_t kDiskBlocksMax = uint64_t{1} << 31;  // 4 PiB.

struct Superblock {
  uint64_t magic;
  uint32_t version;
  uint32_t header_size;    // sizeof(Superblock): lets a later version append.
  uint8_t uuid[16];        // Of the device, drawn at format.
  uint64_t commit;         // Of this superblock, from 1; copy (commit & 1) holds it.
  uint64_t device_size;    // Bytes, at format or since a file grew; the file or device may be larger.
  uint64_t data_offset;    // Bytes.
  uint64_t block_count;    // Of the data area.
  uint32_t block_size;     // 2 MiB.
  uint32_t page_size;      // 4 KiB.
  uint8_t index_uuid[16];  // The synced index that names extents here; zero: none does.
  uint64_t index_commit;   // Last synced commit of that index: an older index must not be believed.
  uint64_t formatted_at;   // Seconds since 1970, for people.
  uint8_t reserved[3984];
  uint32_t flags;  // None defined: zero.
  uint32_t crc;    // CRC32C of the 4,092 bytes before it.
};

static_assert(sizeof(Superblock) == kSuperblockSize);
static_assert(offsetof(Superblock, magic) == 0);
static_assert(offsetof(Superblock, version) == 8);
static_assert(offsetof(Superblock, header_size) == 12);
static_assert(offsetof(Superblock, uuid) == 16);
static_assert(offsetof(Superblock, commit) == 32);
static_assert(offsetof(Superblock, device_size) == 40);
static_assert(offsetof(Superblock, data_offset) == 48);
static_assert(offsetof(Superblock, block_count) == 56);
static_assert(offsetof(Superblock, block_size) == 64);
static_assert(offsetof(Superblock, page_size) == 68);
static_assert(offsetof(Superblock, index_uuid) == 72);
static_assert(offsetof(Superblock, index_commit) == 88);
static_assert(offsetof(Superblock, formatted_at) == 96);
static_assert(offsetof(Superblock, reserved) == 104);
static_assert(offsetof(Superblock, flags) == 4088);
static_assert(offsetof(Superblock, crc) == 4092);
static_assert(kSuperblockOffsets[1] + kSuperblockSize <= kLabelAreaSize);
static_assert(kDiskDataOffset % kBlockSize == 0 && kDiskDataOffset >= kLabelAreaSize);

}  // namespace tier::proto
