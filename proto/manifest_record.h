// The manifest of a named job: what tierd stores about the job's tensors. It must survive a loss of power. It has
// references only, never tensor bytes.
//
//   ManifestHeader, then tensor_count × (ManifestTensorRecord, piece_count × ManifestPieceRecord),
//   then key_count × (ManifestKeyRecord, its bytes, zeros up to a multiple of 8), then run_count × ManifestRunRecord
//
// Integers are little-endian; reserved fields are zero and checked. A manifest is one value, replaced whole; its crc
// covers every byte, itself taken as zero.
// Versions: 2 added the flags of a tensor, which are zero in a manifest of version 1; 3 added kManifestSharded; 4 added
// scattered pieces and their runs. Before 4 the header ends with `step`. Any other `version` is refused whole, never
// read in part.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tier::proto {

inline constexpr uint64_t kManifestMagic = 0x5453464d52454954;  // "TIERMFST"
inline constexpr uint32_t kManifestVersion = 4;
inline constexpr uint32_t kManifestVersionOldest = 1;  // The oldest that is still read.

struct ManifestHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;   // CRC32C of the whole manifest with this field zero.
  uint64_t size;  // Bytes of the whole manifest.
  uint64_t tensor_count;
  uint64_t key_count;
  uint64_t step;  // The last step marker of the job.
  uint64_t run_count;
};

inline constexpr size_t kManifestHeaderSizeBefore4 = 48;

struct ManifestTensorRecord {
  uint64_t tensor;
  uint64_t size;  // Bytes.
  uint64_t generation;
  uint32_t piece_count;
  uint16_t space;  // 0: the shared namespace; 1: a session's, inherited by the sessions that resume.
  uint16_t flags;  // ManifestTensorFlag bits.
};

// Another session than the one that persisted had an unfinished update of the tensor, or the ranks of a sharded one had
// written it in different steps: it is TORN once resumed.
inline constexpr uint16_t kManifestTorn = 1u << 0;
inline constexpr uint16_t kManifestSharded = 1u << 1;  // Created with kFlagSharded. Never of a session's own tensor.
inline constexpr uint16_t kManifestTensorFlagsKnown = kManifestTorn | kManifestSharded;

struct ManifestPieceRecord {
  uint32_t block;  // Where its first run begins.
  uint16_t page;
  uint16_t pages;  // Of all its runs.
  uint32_t crc;
  uint32_t generation;
  uint16_t device;
  uint16_t run_count;  // 0: one run. Else 2 … 512, in the order of the content, from the manifest's run `first_run` on.
  uint32_t first_run;
};

struct ManifestRunRecord {
  uint32_t block;
  uint16_t page;
  uint16_t pages;
};

struct ManifestKeyRecord {
  uint64_t id;
  uint32_t length;  // Bytes.
  uint32_t reserved;
};

static_assert(sizeof(ManifestHeader) == 56 && offsetof(ManifestHeader, run_count) == kManifestHeaderSizeBefore4);
static_assert(sizeof(ManifestRunRecord) == 8 && sizeof(ManifestTensorRecord) == 32);
static_assert(sizeof(ManifestPieceRecord) == 24 && sizeof(ManifestKeyRecord) == 16);
static_assert(offsetof(ManifestTensorRecord, space) == 28 && offsetof(ManifestTensorRecord, flags) == 30);
static_assert(offsetof(ManifestHeader, crc) == 12 && offsetof(ManifestHeader, tensor_count) == 24);
static_assert(offsetof(ManifestPieceRecord, crc) == 8 && offsetof(ManifestPieceRecord, device) == 16);

}  // namespace tier::proto
