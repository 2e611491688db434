// See superblock.h.
#include "daemon/storage/superblock.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sys/random.h>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"

namespace tier::storage {
namespace {

using proto::Superblock;
using Bytes = std::span<const std::byte>;

bool AllZero(Bytes bytes) {
  // Each byte equals the one before it, at the speed of memcmp: a label area is a megabyte.
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

bool HasMagic(Bytes copy) {
  uint64_t magic = 0;
  if (copy.size() < sizeof magic) return false;
  std::memcpy(&magic, copy.data(), sizeof magic);
  return magic == proto::kDiskMagic;
}

uint32_t ChecksumOf(const Superblock& superblock) {
  return Crc32c(std::as_bytes(std::span(&superblock, 1)).first(offsetof(Superblock, crc)));
}

// What a write of ours that was cut short may leave: our magic or nothing, and nothing where we only write zeros.
bool CouldBeTornOurs(Bytes copy) {
  if (AllZero(copy)) return true;
  const Bytes reserved = copy.subspan(offsetof(Superblock, reserved), sizeof(Superblock::reserved));
  return HasMagic(copy) && AllZero(reserved);
}

Bytes CopyIn(Bytes label, uint64_t offset) {
  if (offset >= label.size()) return {};
  return label.subspan(offset, std::min<uint64_t>(proto::kSuperblockSize, label.size() - offset));
}

// Everything between and behind the two copies.
bool ZeroOutsideCopies(Bytes label) {
  uint64_t at = 0;
  for (const uint64_t offset : proto::kSuperblockOffsets) {
    const uint64_t end = std::min<uint64_t>(offset, label.size());
    if (at < end && !AllZero(label.subspan(at, end - at))) return false;
    at = std::min<uint64_t>(offset + proto::kSuperblockSize, label.size());
  }
  return AllZero(label.subspan(at));
}

Status CheckFields(const Superblock& s) {
  const bool geometry = s.block_size == kBlockSize && s.page_size == kPageSize &&
                        s.data_offset == proto::kDiskDataOffset && s.device_size >= proto::kDiskSizeMin &&
                        s.block_count != 0 && s.block_count <= proto::kDiskBlocksMax &&
                        s.block_count <= (s.device_size - s.data_offset) / s.block_size;
  const bool shape = s.header_size == proto::kSuperblockSize && s.commit != 0 && s.flags == 0 &&
                     AllZero(std::as_bytes(std::span(s.reserved)));
  if (geometry && shape) return {};
  return Fail(Code::kCorrupt,
              fmt::format("the superblock (commit {}) describes an impossible device: {} bytes, {} blocks "
                          "of {} bytes from {}",
                          s.commit, s.device_size, s.block_count, s.block_size, s.data_offset));
}

}  // namespace

std::string FormatUuid(const Uuid& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

Uuid DrawUuid() {
  Uuid uuid{};
  const ssize_t got = ::getrandom(uuid.data(), uuid.size(), 0);
  TIER_CHECK(got == static_cast<ssize_t>(uuid.size()), "getrandom: {}", got);
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x40);  // RFC 4122: version 4, variant 1.
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

Uuid UuidOf(const Superblock& superblock) {
  Uuid uuid{};
  std::memcpy(uuid.data(), superblock.uuid, uuid.size());
  return uuid;
}

Uuid IndexUuidOf(const Superblock& superblock) {
  Uuid uuid{};
  std::memcpy(uuid.data(), superblock.index_uuid, uuid.size());
  return uuid;
}

Superblock MakeSuperblock(const Uuid& uuid, uint64_t device_size, uint64_t formatted_at) {
  Superblock s{};
  s.magic = proto::kDiskMagic;
  s.version = proto::kDiskVersion;
  s.header_size = proto::kSuperblockSize;
  std::memcpy(s.uuid, uuid.data(), uuid.size());
  s.commit = 1;
  s.data_offset = proto::kDiskDataOffset;
  SetDeviceSize(&s, device_size);
  s.block_size = kBlockSize;
  s.page_size = kPageSize;
  s.formatted_at = formatted_at;
  return s;
}

void SetDeviceSize(Superblock* superblock, uint64_t device_size) {
  TIER_CHECK(device_size >= proto::kDiskSizeMin, "device of {} bytes", device_size);
  superblock->device_size = device_size;
  superblock->block_count = std::min((device_size - proto::kDiskDataOffset) / kBlockSize, proto::kDiskBlocksMax);
}

void SealSuperblock(Superblock* superblock) { superblock->crc = ChecksumOf(*superblock); }

Result<Superblock> ParseSuperblock(Bytes copy) {
  if (copy.size() < sizeof(Superblock) || !HasMagic(copy)) return Fail(Code::kCorrupt, "no superblock of tierd");
  Superblock s;
  std::memcpy(&s, copy.data(), sizeof s);
  if (s.crc != ChecksumOf(s)) {
    return Fail(Code::kCorrupt, fmt::format("superblock checksum {:08x}, computed {:08x}", s.crc, ChecksumOf(s)));
  }
  if (s.version != proto::kDiskVersion) {
    return Fail(Code::kVersion, fmt::format("disk format {}, this tierd reads {}", s.version, proto::kDiskVersion));
  }
  if (Status status = CheckFields(s); !status) return std::unexpected(status.error());
  return s;
}

Result<Superblock> ReadLabel(Bytes label) {
  label = label.first(std::min<uint64_t>(label.size(), proto::kLabelAreaSize));
  if (AllZero(label)) return Fail(Code::kNotFound, "no superblock: the label area is blank");
  Result<Superblock> newest = Fail(Code::kInvalid, "it holds data that is not tierd's");
  if (!ZeroOutsideCopies(label)) return newest;
  bool damaged = false;
  for (const uint64_t offset : proto::kSuperblockOffsets) {
    const Bytes copy = CopyIn(label, offset);
    const auto parsed = ParseSuperblock(copy);
    if (parsed) {
      if (!newest || parsed->commit > newest->commit) newest = *parsed;
    } else if (parsed.error().code == Code::kVersion) {
      return parsed;
    } else if (copy.size() < sizeof(Superblock) ? !AllZero(copy) : !CouldBeTornOurs(copy)) {
      return Fail(Code::kInvalid, "it holds data that is not tierd's");
    } else {
      damaged = damaged || HasMagic(copy);
    }
  }
  if (!newest && damaged) return Fail(Code::kCorrupt, "both copies of its superblock are damaged");
  return newest;
}

}  // namespace tier::storage
