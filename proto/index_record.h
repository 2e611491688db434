// What tierd writes down about a tensor: the values of the ram index (what lies where now, for a restarted daemon) and
// the manifests of named jobs (what must survive the machine). References only, never tensor bytes.
//
//   ram index:        IndexFormatRecord, before all others, under a key of one zero byte; then for each tensor
//     record 0          IndexTensorRecord; with at most kIndexChunkPieces pieces, these follow it
//     record 1 + k      with more: the IndexPieceRecords of its k-th kIndexChunkPieces pieces; as many as are left
//   manifest:         ManifestHeader, then tensor_count × (ManifestTensorRecord, piece_count × ManifestPieceRecord),
//                     then key_count × (ManifestKeyRecord, its bytes, zeros up to a multiple of 8)
//
// The key of an index record is (job, space, tensor: 8 bytes each, record: 4), big-endian. All other integers are
// little-endian; reserved fields are zero and checked. A manifest is one value, replaced whole; its crc covers every
// byte, itself taken as zero.
// Versions: another `version` is refused whole, never read in part.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tier::proto {

inline constexpr uint64_t kIndexMagic = 0x5844495252454954;  // "TIERRIDX"
inline constexpr uint32_t kIndexVersion = 2;                 // 1: one record a tensor, and no format record.
// Pieces of a record: what a change of one piece puts, at most. Seven such records fill a page of LMDB.
inline constexpr uint32_t kIndexChunkPieces = 16;
inline constexpr uint64_t kManifestMagic = 0x5453464d52454954;  // "TIERMFST"
inline constexpr uint32_t kManifestVersion = 1;

inline constexpr uint32_t kIndexTensorVisible = 1u << 0;  // Every range was sealed once; else it is being created.
inline constexpr uint32_t kIndexTensorTorn = 1u << 1;

enum class IndexCopies : uint8_t { kCreating = 0, kRam = 1, kSsd = 2, kRamSsd = 3, kTorn = 4 };

inline constexpr uint8_t kIndexPieceDirty = 1u << 0;    // Under a write lease: the RAM bytes are not final.
inline constexpr uint8_t kIndexPieceMixed = 1u << 1;    // Went back to an older generation than its neighbours.
inline constexpr uint8_t kIndexPieceCorrupt = 1u << 2;  // Its SSD copy came back with a wrong checksum.

struct IndexFormatRecord {
  uint64_t magic;
  uint32_t version;  // kIndexVersion
  uint32_t reserved;
};

struct IndexTensorRecord {
  uint64_t size;        // Bytes.
  uint64_t generation;  // Rises with every write lease.
  uint64_t session;     // That creates it, until it is visible; else 0.
  uint32_t flags;       // kIndexTensor…
  uint32_t piece_count;
};

struct IndexPieceRecord {
  uint32_t ram_block;  // Arena-wide block: window × blocks per window + block in the window.
  uint16_t ram_page;
  uint16_t ram_pages;  // 0: no RAM copy.
  uint32_t ssd_block;  // Of the device's data area.
  uint16_t ssd_page;
  uint16_t ssd_pages;  // 0: no extent.
  uint32_t crc;        // CRC32C of the content at ssd.
  uint32_t generation;
  uint32_t ssd_generation;  // Of the bytes at ssd.
  uint16_t ssd_device;
  uint8_t copies;  // IndexCopies
  uint8_t flags;   // kIndexPiece…
};

struct ManifestHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;   // CRC32C of the whole manifest with this field zero.
  uint64_t size;  // Bytes of the whole manifest.
  uint64_t tensor_count;
  uint64_t key_count;
  uint64_t step;  // The last step marker of the job.
};

struct ManifestTensorRecord {
  uint64_t tensor;
  uint64_t size;  // Bytes.
  uint64_t generation;
  uint32_t piece_count;
  uint32_t space;  // 0: the shared namespace; 1: a session's, inherited by the sessions that resume.
};

struct ManifestPieceRecord {
  uint32_t block;
  uint16_t page;
  uint16_t pages;
  uint32_t crc;
  uint32_t generation;
  uint16_t device;
  uint16_t reserved0;
  uint32_t reserved1;
};

struct ManifestKeyRecord {
  uint64_t id;
  uint32_t length;  // Bytes.
  uint32_t reserved;
};

static_assert(sizeof(IndexFormatRecord) == 16 && offsetof(IndexFormatRecord, version) == 8);
static_assert(sizeof(IndexTensorRecord) == 32 && sizeof(IndexPieceRecord) == 32);
static_assert(offsetof(IndexTensorRecord, flags) == 24 && offsetof(IndexTensorRecord, piece_count) == 28);
static_assert(offsetof(IndexPieceRecord, ssd_block) == 8 && offsetof(IndexPieceRecord, crc) == 16);
static_assert(offsetof(IndexPieceRecord, generation) == 20 && offsetof(IndexPieceRecord, ssd_device) == 28);
static_assert(offsetof(IndexPieceRecord, copies) == 30 && offsetof(IndexPieceRecord, flags) == 31);
static_assert(sizeof(ManifestHeader) == 48 && sizeof(ManifestTensorRecord) == 32);
static_assert(sizeof(ManifestPieceRecord) == 24 && sizeof(ManifestKeyRecord) == 16);
static_assert(offsetof(ManifestHeader, crc) == 12 && offsetof(ManifestHeader, tensor_count) == 24);
static_assert(offsetof(ManifestPieceRecord, crc) == 8 && offsetof(ManifestPieceRecord, device) == 16);

}  // namespace tier::proto
