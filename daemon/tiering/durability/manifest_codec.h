// ManifestCodec: a job's manifest as bytes and back (layout: proto/manifest_record.h), record by record, so that who
// has little time does some at a time. Reading trusts nothing: the bytes come from a disk. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
};

// Puts a manifest together, record by record.
class ManifestWriter {
 public:
  explicit ManifestWriter(size_t size_expected);  // Bytes of its records, about.

  // A tensor: its record, its pieces in order, and at the end what is known of it then.
  void BeginTensor(const proto::ManifestTensorRecord& record);
  void AddPiece(const proto::ManifestPieceRecord& record);
  void EndTensor(uint16_t flags);
  void DropTensor();  // Nothing of the tensor that was begun is in it. REQUIRES: not ended.
  void AddKey(uint64_t id, std::string_view key);  // Behind all tensors.

  void SetStep(uint64_t step) { header_.step = step; }  // REQUIRES: Seal has not begun.
  bool sealing() const { return summed_ != 0; }
  // Bytes that the checksum is still to go over, in units of so many.
  uint32_t UnitsToSeal(size_t unit) const { return static_cast<uint32_t>((bytes_.size() - summed_ + unit - 1) / unit); }
  // Goes on with the checksum, for so many bytes. True: it is whole. REQUIRES: nothing is added any more.
  bool Seal(size_t size);
  std::vector<std::byte> Take() && { return std::move(bytes_); }  // REQUIRES: whole.

 private:
  template <typename Record>
  void Add(const Record& record);

  proto::ManifestHeader header_{};
  std::vector<std::byte> bytes_;
  size_t tensor_at_ = 0;
  size_t summed_ = 0;
};

// Reads a manifest: Open, then Sum until the checksum is whole, then the records, in their order. What is wrong with it
// is CORRUPT, or VERSION.
class ManifestReader {
 public:
  explicit ManifestReader(std::span<const std::byte> bytes) : bytes_(bytes) {}  // `bytes` outlive it.

  Status Open();
  // Bytes that the checksum is still to go over, in units of so many.
  uint32_t UnitsToSum(size_t unit) const { return static_cast<uint32_t>((bytes_.size() - summed_ + unit - 1) / unit); }
  Status Sum(size_t size);
  bool summed() const { return summed_ == bytes_.size(); }

  uint64_t step() const { return header_.step; }
  uint64_t tensors_left() const { return tensors_left_; }
  uint32_t pieces_left() const { return pieces_left_; }  // Of the last tensor.
  uint64_t keys_left() const { return keys_left_; }
  Result<proto::ManifestTensorRecord> NextTensor();  // REQUIRES: tensors_left() != 0, pieces_left() == 0.
  Result<proto::ManifestPieceRecord> NextPiece();    // REQUIRES: pieces_left() != 0.
  void SkipPieces();
  Result<ManifestKey> NextKey();  // REQUIRES: keys_left() != 0, tensors_left() == 0.
  Status End() const;             // Nothing follows the last record.
  void Rewind();                  // To the first record. REQUIRES: open.

 private:
  template <typename Record>
  bool Take(Record* record);
  bool TakeText(uint32_t length, std::string* text);

  std::span<const std::byte> bytes_;
  std::span<const std::byte> left_;
  proto::ManifestHeader header_{};
  proto::ManifestTensorRecord tensor_{};
  uint64_t tensors_left_ = 0;
  uint32_t pieces_left_ = 0;
  uint64_t keys_left_ = 0;
  size_t summed_ = 0;
  uint32_t crc_ = 0;
};

inline storage::Extent ExtentOf(const proto::ManifestPieceRecord& piece) {
  return {.run = {.block = piece.block, .page = piece.page, .pages = piece.pages}, .device = piece.device};
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
// CORRUPT, VERSION; the sentence says what is wrong with it.
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes);

}  // namespace tier::tiering
