// Superblock pairs: what the label area of a device says. Pure functions over bytes; proto/disk.h has the layout.
//
// The rule that keeps other people's data safe: the label area is ours only if everything in it that we would not have
// written is zero. A partition table, a file system or an LVM label over a device of ours shows as foreign, even where
// one of our two copies survived it. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "proto/disk.h"
#include "proto/result.h"

namespace tier::storage {

using Uuid = std::array<uint8_t, 16>;

std::string FormatUuid(const Uuid& uuid);  // "8-4-4-4-12" hexadecimal digits.
Uuid DrawUuid();                           // Random (version 4), from the kernel.
Uuid UuidOf(const proto::Superblock& superblock);
// Of the index that it belongs to. Zero: it belongs to none.
Uuid IndexUuidOf(const proto::Superblock& superblock);

// A superblock for a device of `device_size` bytes, commit 1, not yet sealed. REQUIRES: device_size >= kDiskSizeMin.
proto::Superblock MakeSuperblock(const Uuid& uuid, uint64_t device_size, uint64_t formatted_at);
// The device has so many bytes, and as many blocks as fit. REQUIRES: device_size >= kDiskSizeMin.
void SetDeviceSize(proto::Superblock* superblock, uint64_t device_size);
// Computes the checksum over what is in it now.
void SealSuperblock(proto::Superblock* superblock);
// Which copy holds commit `commit`.
constexpr uint64_t CopyOffset(uint64_t commit) { return proto::kSuperblockOffsets[commit & 1]; }

// One copy. CORRUPT: damaged or fields that cannot be; VERSION: of a later tierd.
Result<proto::Superblock> ParseSuperblock(std::span<const std::byte> copy);

// The newest valid copy in a label area (its first kLabelAreaSize bytes; fewer: the device ends there).
// NOT_FOUND: all zero. INVALID: foreign content. CORRUPT: ours, but both copies are damaged. VERSION: of a later tierd.
Result<proto::Superblock> ReadLabel(std::span<const std::byte> label);

}  // namespace tier::storage
