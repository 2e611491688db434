// See manifest_codec.h.
#include "daemon/tiering/durability/manifest_codec.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/message.h"

namespace tier::tiering {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename Record>
  bool Take(Record* record) {
    if (bytes_.size() < sizeof(*record)) return false;
    std::memcpy(record, bytes_.data(), sizeof(*record));
    bytes_ = bytes_.subspan(sizeof(*record));
    return true;
  }
  bool TakeText(uint32_t length, std::string* text) {
    const uint64_t padded = AlignUp(length, 8);
    if (bytes_.size() < padded) return false;
    text->assign(reinterpret_cast<const char*>(bytes_.data()), length);
    const auto padding = bytes_.first(padded).subspan(length);
    bytes_ = bytes_.subspan(padded);
    return std::ranges::all_of(padding, [](std::byte byte) { return byte == std::byte{0}; });
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

std::unexpected<Error> Corrupt(std::string what) {
  return Fail(Code::kCorrupt, "the manifest is damaged: " + std::move(what) + "; persist again from a good state");
}

bool SanePiece(const proto::ManifestPieceRecord& piece, uint64_t length) {
  return piece.reserved0 == 0 && piece.reserved1 == 0 && piece.pages == PagesFor(length) && piece.device < 64 &&
         uint32_t{piece.page} + piece.pages <= kPagesPerBlock;
}

bool TakeTensor(Reader& reader, uint32_t version, ManifestTensor* tensor) {
  if (!reader.Take(&tensor->record)) return false;
  const proto::ManifestTensorRecord& record = tensor->record;
  const uint16_t known = version == proto::kManifestVersionOldest ? 0 : proto::kManifestTensorFlagsKnown;
  if ((record.flags & ~known) != 0) return false;
  // The piece count of a size near 2^64 overflows to zero.
  if (record.size == 0 || record.size > kPiecesPerTensorMax * kBlockSize || record.space > 1) return false;
  if (PieceCountOf(record.size) != record.piece_count) return false;
  if (reader.left() / sizeof(proto::ManifestPieceRecord) < record.piece_count) return false;
  tensor->pieces.resize(record.piece_count);
  for (uint32_t k = 0; k < record.piece_count; ++k) {
    const uint64_t length = std::min<uint64_t>(kBlockSize, record.size - uint64_t{k} * kBlockSize);
    if (!reader.Take(&tensor->pieces[k]) || !SanePiece(tensor->pieces[k], length)) return false;
  }
  return true;
}

bool TakeKey(Reader& reader, ManifestKey* key) {
  proto::ManifestKeyRecord record{};
  if (!reader.Take(&record) || record.reserved != 0 || record.id == 0) return false;
  if (record.length == 0 || record.length > proto::kKeyLengthMax) return false;
  key->id = record.id;
  return reader.TakeText(record.length, &key->key);
}

}  // namespace

ManifestWriter::ManifestWriter(uint64_t step, size_t size_expected) {
  header_ = {.magic = proto::kManifestMagic, .version = proto::kManifestVersion, .step = step};
  bytes_.reserve(sizeof(header_) + size_expected);
  Add(header_);
}

template <typename Record>
void ManifestWriter::Add(const Record& record) {
  const size_t at = bytes_.size();
  bytes_.resize(at + sizeof(record));
  std::memcpy(bytes_.data() + at, &record, sizeof(record));
}

void ManifestWriter::BeginTensor(const proto::ManifestTensorRecord& record) {
  tensor_at_ = bytes_.size();
  Add(record);
}

void ManifestWriter::AddPiece(const proto::ManifestPieceRecord& record) { Add(record); }

void ManifestWriter::DropTensor() { bytes_.resize(tensor_at_); }

void ManifestWriter::EndTensor(uint16_t flags) {
  std::memcpy(bytes_.data() + tensor_at_ + offsetof(proto::ManifestTensorRecord, flags), &flags, sizeof(flags));
  ++header_.tensor_count;
}

void ManifestWriter::AddKey(uint64_t id, std::string_view key) {
  Add(proto::ManifestKeyRecord{.id = id, .length = static_cast<uint32_t>(key.size())});
  const size_t at = bytes_.size();
  bytes_.resize(at + AlignUp(key.size(), 8));
  std::memcpy(bytes_.data() + at, key.data(), key.size());
  ++header_.key_count;
}

bool ManifestWriter::Seal(size_t size) {
  if (summed_ == 0) {
    header_.size = bytes_.size();
    std::memcpy(bytes_.data(), &header_, sizeof(header_));
  }
  const size_t part = std::min(size, bytes_.size() - summed_);
  header_.crc = storage::Crc32c(std::span(bytes_).subspan(summed_, part), header_.crc);
  summed_ += part;
  if (summed_ != bytes_.size()) return false;
  std::memcpy(bytes_.data(), &header_, sizeof(header_));
  return true;
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest) {
  ManifestWriter writer(manifest.step, 0);
  for (const ManifestTensor& tensor : manifest.tensors) {
    TIER_CHECK(tensor.pieces.size() == tensor.record.piece_count, "{} pieces of {}", tensor.pieces.size(),
               tensor.record.piece_count);
    writer.BeginTensor(tensor.record);
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) writer.AddPiece(piece);
    writer.EndTensor(tensor.record.flags);
  }
  for (const ManifestKey& key : manifest.keys) writer.AddKey(key.id, key.key);
  const bool whole = writer.Seal(SIZE_MAX);
  TIER_CHECK(whole, "{} tensors", manifest.tensors.size());
  return std::move(writer).Take();
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  proto::ManifestHeader header{};
  if (!reader.Take(&header) || header.magic != proto::kManifestMagic) return Corrupt("it does not begin like one");
  if (header.version < proto::kManifestVersionOldest || header.version > proto::kManifestVersion) {
    return Fail(Code::kVersion, fmt::format("the manifest has version {}, this daemon reads {} to {}", header.version,
                                            proto::kManifestVersionOldest, proto::kManifestVersion));
  }
  if (header.size != bytes.size()) return Corrupt(fmt::format("{} bytes of {}", bytes.size(), header.size));
  std::vector<std::byte> summed(bytes.begin(), bytes.end());
  std::memset(summed.data() + offsetof(proto::ManifestHeader, crc), 0, sizeof(header.crc));
  if (storage::Crc32c(summed) != header.crc) return Corrupt("wrong checksum");
  Manifest manifest{.step = header.step, .tensors = {}, .keys = {}};
  for (uint64_t i = 0; i < header.tensor_count; ++i) {
    if (!TakeTensor(reader, header.version, &manifest.tensors.emplace_back()))
      return Corrupt(fmt::format("tensor record {}", i));
  }
  for (uint64_t i = 0; i < header.key_count; ++i) {
    if (!TakeKey(reader, &manifest.keys.emplace_back())) return Corrupt(fmt::format("key record {}", i));
  }
  if (reader.left() != 0) return Corrupt(fmt::format("{} bytes too many", reader.left()));
  return manifest;
}

}  // namespace tier::tiering
