// ManifestCodec: a job's manifest as bytes and back (layout: proto/manifest_record.h). Reading trusts nothing: the
// bytes come from a disk. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // `size_expected`: bytes of its records, about.
  ManifestWriter(uint64_t step, size_t size_expected);

  // A tensor: its record, its pieces in order, and at the end what is known of it then.
  void BeginTensor(const proto::ManifestTensorRecord& record);
  void AddPiece(const proto::ManifestPieceRecord& record);
  void EndTensor(uint16_t flags);
  void DropTensor();  // Nothing of the tensor that was begun is in it. REQUIRES: not ended.
  void AddKey(uint64_t id, std::string_view key);  // Behind all tensors.

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

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
// CORRUPT, VERSION; the sentence says what is wrong with it.
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes);

}  // namespace tier::tiering
