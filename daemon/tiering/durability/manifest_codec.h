// ManifestCodec: a job's manifest as bytes and back (layout: proto/manifest_record.h), record by record, so that a
// caller with a bounded turn does some at a time. Reading trusts nothing: the bytes come from a disk. The bytes have
// the stored numbers of devices, the records those of this run.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/storage/device_numbers.h"
#include "daemon/storage/extent.h"
#include "proto/manifest_record.h"
#include "proto/result.h"

namespace tier::tiering {

struct ManifestTensor {
  proto::ManifestTensorRecord record{};
  std::vector<proto::ManifestPieceRecord> pieces;
};

struct ManifestKey {
  uint64_t id = 0;
  std::string key;
};

struct Manifest {
  uint64_t step = 0;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestKey> keys;
  std::vector<base::PageRun> runs;  // Of scattered pieces: `first_run` of a piece's record counts from the first.
};

// Puts a manifest together, record by record.
class ManifestWriter {
 public:
  // `size_expected`: estimated bytes of all records.
  explicit ManifestWriter(size_t size_expected, const storage::DeviceNumbers& numbers = {});

  // A tensor: its record, its pieces in order, then the flags that are known after the last piece.
  void BeginTensor(const proto::ManifestTensorRecord& record);
  // `runs`: of its extent; the record's own count and place of them mean nothing here.
  void AddPiece(proto::ManifestPieceRecord record, std::span<const base::PageRun> runs);
  void EndTensor(uint16_t flags);
  void DropTensor();                               // Removes the tensor that was begun. REQUIRES: not ended.
  void AddKey(uint64_t id, std::string_view key);  // REQUIRES: all tensors were added.

  void SetStep(uint64_t step) { header_.step = step; }  // REQUIRES: Seal has not begun.
  bool sealing() const { return summed_ != 0; }
  size_t run_count() const { return runs_.size(); }
  // Bytes that the checksum has still to cover, in units of so many.
  uint32_t UnitsToSeal(size_t unit) const {
    const size_t runs = (runs_.size() - runs_added_) * sizeof(proto::ManifestRunRecord);
    return static_cast<uint32_t>((bytes_.size() + runs - summed_ + unit - 1) / unit);
  }
  // Continues the checksum for so many bytes. True: it is complete. REQUIRES: nothing is added any more.
  bool Seal(size_t size);
  std::vector<std::byte> Take() && { return std::move(bytes_); }  // REQUIRES: sealed.

 private:
  template <typename Record>
  void Add(const Record& record);

  const storage::DeviceNumbers numbers_;
  proto::ManifestHeader header_{};
  std::vector<std::byte> bytes_;
  std::vector<proto::ManifestRunRecord> runs_;
  size_t tensor_at_ = 0;
  size_t tensor_run_at_ = 0;
  size_t runs_added_ = 0;  // To `bytes_`.
  size_t summed_ = 0;
};

// Reads a manifest: Open, then Sum until the checksum is complete, then the records, in their order. A damaged manifest
// is CORRUPT, one of an unknown format VERSION.
class ManifestReader {
 public:
  // `bytes` outlive it.
  explicit ManifestReader(std::span<const std::byte> bytes, const storage::DeviceNumbers& numbers = {})
      : bytes_(bytes), numbers_(numbers) {}

  Status Open();
  // Bytes that the checksum has still to cover, in units of so many.
  uint32_t UnitsToSum(size_t unit) const { return static_cast<uint32_t>((bytes_.size() - summed_ + unit - 1) / unit); }
  Status Sum(size_t size);
  bool summed() const { return summed_ == bytes_.size(); }

  uint64_t step() const { return header_.step; }
  uint64_t tensors_left() const { return tensors_left_; }
  uint32_t pieces_left() const { return pieces_left_; }  // Of the tensor that was read last.
  uint64_t keys_left() const { return keys_left_; }
  Result<proto::ManifestTensorRecord> NextTensor();  // REQUIRES: tensors_left() != 0, pieces_left() == 0.
  Result<proto::ManifestPieceRecord> NextPiece();    // REQUIRES: pieces_left() != 0.
  void SkipPieces();
  // Of a piece that was read.
  std::vector<base::PageRun> RunsOf(const proto::ManifestPieceRecord& piece) const;
  Result<ManifestKey> NextKey();  // REQUIRES: keys_left() != 0, tensors_left() == 0.
  Status End() const;             // Nothing follows the last record.
  void Rewind();                  // To the first record. REQUIRES: open.

 private:
  template <typename Record>
  bool Take(Record* record);
  bool TakeText(uint32_t length, std::string* text);
  bool SanePiece(const proto::ManifestPieceRecord& piece, uint64_t length) const;
  proto::ManifestRunRecord RunAt(size_t index) const;

  std::span<const std::byte> bytes_;
  const storage::DeviceNumbers numbers_;
  std::span<const std::byte> left_;
  std::span<const std::byte> runs_;
  size_t header_size_ = sizeof(proto::ManifestHeader);
  proto::ManifestHeader header_{};
  proto::ManifestTensorRecord tensor_{};
  uint64_t tensors_left_ = 0;
  uint32_t pieces_left_ = 0;
  uint64_t keys_left_ = 0;
  size_t summed_ = 0;
  uint32_t crc_ = 0;
  uint64_t runs_read_ = 0;  // Of the pieces before this one …
  bool skipped_ = false;    // … unless some were skipped.
};

inline storage::Extent ExtentOf(const proto::ManifestPieceRecord& piece) {
  return {.run = {.block = piece.block, .page = piece.page, .pages = piece.pages},
          .device = piece.device,
          .scattered = piece.run_count != 0};
}

// Of a scattered piece of it; of another none.
inline std::span<const base::PageRun> RunsIn(const Manifest& manifest, const proto::ManifestPieceRecord& piece) {
  if (piece.run_count == 0) return {};
  return std::span(manifest.runs).subspan(piece.first_run, piece.run_count);
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
// CORRUPT or VERSION; the message says what is wrong with it.
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, const storage::DeviceNumbers& numbers = {});

}  // namespace tier::tiering
