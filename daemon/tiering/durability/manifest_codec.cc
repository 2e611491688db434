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

std::unexpected<Error> Corrupt(std::string what) {
  return Fail(Code::kCorrupt, "the manifest is damaged: " + std::move(what) + "; persist again from a good state");
}

bool IsWithinABlock(uint32_t page, uint32_t pages) { return pages != 0 && page + pages <= kPagesPerBlock; }

// Its last field came with version 4.
size_t HeaderSize(uint32_t version) {
  return version < 4 ? proto::kManifestHeaderSizeBefore4 : sizeof(proto::ManifestHeader);
}

uint32_t FlagsKnown(uint32_t version) {
  if (version == proto::kManifestVersionOldest) return 0;
  return version == 2 ? proto::kManifestTorn : proto::kManifestTensorFlagsKnown;
}

bool SaneTensor(const proto::ManifestTensorRecord& record, uint32_t version) {
  if ((record.flags & ~FlagsKnown(version)) != 0) return false;
  if ((record.flags & proto::kManifestSharded) != 0 && record.space != 0) return false;
  // The piece count of a size near 2^64 overflows to zero.
  if (record.size == 0 || record.size > kPiecesPerTensorMax * kBlockSize || record.space > 1) return false;
  return PieceCountOf(record.size) == record.piece_count;
}

}  // namespace

ManifestWriter::ManifestWriter(size_t size_expected, const storage::DeviceNumbers& numbers) : numbers_(numbers) {
  header_ = {.magic = proto::kManifestMagic, .version = proto::kManifestVersion};
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
  tensor_run_at_ = runs_.size();
  Add(record);
}

void ManifestWriter::AddPiece(proto::ManifestPieceRecord record, std::span<const base::PageRun> runs) {
  record.device = numbers_.StoredOf(record.device);
  record.run_count = 0;
  record.first_run = 0;
  if (runs.size() > 1) {
    record.run_count = static_cast<uint16_t>(runs.size());
    record.first_run = static_cast<uint32_t>(runs_.size());
    for (const base::PageRun run : runs) runs_.push_back({.block = run.block, .page = run.page, .pages = run.pages});
  }
  Add(record);
}

void ManifestWriter::DropTensor() {
  bytes_.resize(tensor_at_);
  runs_.resize(tensor_run_at_);
}

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
    header_.run_count = runs_.size();
    header_.size = bytes_.size() + runs_.size() * sizeof(proto::ManifestRunRecord);
    bytes_.reserve(header_.size);
    std::memcpy(bytes_.data(), &header_, sizeof(header_));
  }
  // Runs stand behind everything else: they are added as the checksum comes to them.
  while (runs_added_ != runs_.size() && bytes_.size() - summed_ < size) Add(runs_[runs_added_++]);
  const size_t part = std::min(size, bytes_.size() - summed_);
  header_.crc = storage::Crc32c(std::span(bytes_).subspan(summed_, part), header_.crc);
  summed_ += part;
  if (summed_ != header_.size) return false;
  std::memcpy(bytes_.data(), &header_, sizeof(header_));
  return true;
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest) {
  ManifestWriter writer(0);
  writer.SetStep(manifest.step);
  for (const ManifestTensor& tensor : manifest.tensors) {
    TIER_CHECK(tensor.pieces.size() == tensor.record.piece_count, "{} pieces of {}", tensor.pieces.size(),
               tensor.record.piece_count);
    writer.BeginTensor(tensor.record);
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      TIER_CHECK(size_t{piece.first_run} + piece.run_count <= manifest.runs.size() || piece.run_count == 0,
                 "runs {} + {} of {}", piece.first_run, piece.run_count, manifest.runs.size());
      writer.AddPiece(piece, RunsIn(manifest, piece));
    }
    writer.EndTensor(tensor.record.flags);
  }
  for (const ManifestKey& key : manifest.keys) writer.AddKey(key.id, key.key);
  const bool whole = writer.Seal(SIZE_MAX);
  TIER_CHECK(whole, "{} tensors", manifest.tensors.size());
  return std::move(writer).Take();
}

template <typename Record>
bool ManifestReader::Take(Record* record) {
  if (left_.size() < sizeof(*record)) return false;
  std::memcpy(record, left_.data(), sizeof(*record));
  left_ = left_.subspan(sizeof(*record));
  return true;
}

bool ManifestReader::TakeText(uint32_t length, std::string* text) {
  const uint64_t padded = AlignUp(length, 8);
  if (left_.size() < padded) return false;
  text->assign(reinterpret_cast<const char*>(left_.data()), length);
  const auto padding = left_.first(padded).subspan(length);
  left_ = left_.subspan(padded);
  return std::ranges::all_of(padding, [](std::byte byte) { return byte == std::byte{0}; });
}

Status ManifestReader::Open() {
  if (bytes_.size() < proto::kManifestHeaderSizeBefore4) return Corrupt("it does not begin like one");
  header_ = {};
  std::memcpy(&header_, bytes_.data(), proto::kManifestHeaderSizeBefore4);
  if (header_.magic != proto::kManifestMagic) return Corrupt("it does not begin like one");
  if (header_.version < proto::kManifestVersionOldest || header_.version > proto::kManifestVersion) {
    return Fail(Code::kVersion, fmt::format("the manifest has version {}, this daemon reads {} to {}", header_.version,
                                            proto::kManifestVersionOldest, proto::kManifestVersion));
  }
  header_size_ = HeaderSize(header_.version);
  if (header_.size != bytes_.size() || bytes_.size() < header_size_) {
    return Corrupt(fmt::format("{} bytes of {}", bytes_.size(), header_.size));
  }
  std::memcpy(&header_, bytes_.data(), header_size_);
  const size_t runs_max =
      std::min<size_t>((bytes_.size() - header_size_) / sizeof(proto::ManifestRunRecord), UINT32_MAX);
  if (header_.run_count > runs_max)
    return Corrupt(fmt::format("{} runs in {} bytes", header_.run_count, bytes_.size()));
  runs_ = bytes_.last(header_.run_count * sizeof(proto::ManifestRunRecord));
  Rewind();
  return {};
}

void ManifestReader::Rewind() {
  left_ = bytes_.first(bytes_.size() - runs_.size()).subspan(header_size_);
  tensors_left_ = header_.tensor_count;
  pieces_left_ = 0;
  runs_read_ = 0;
  skipped_ = false;
  keys_left_ = header_.key_count;
}

Status ManifestReader::Sum(size_t size) {
  if (summed_ == 0) {
    proto::ManifestHeader header = header_;
    header.crc = 0;
    crc_ = storage::Crc32c(std::as_bytes(std::span(&header, 1)).first(header_size_));
    summed_ = header_size_;
  }
  const size_t part = std::min(size, bytes_.size() - summed_);
  crc_ = storage::Crc32c(bytes_.subspan(summed_, part), crc_);
  summed_ += part;
  if (summed() && crc_ != header_.crc) return Corrupt("wrong checksum");
  return {};
}

Result<proto::ManifestTensorRecord> ManifestReader::NextTensor() {
  TIER_CHECK(tensors_left_ != 0 && pieces_left_ == 0, "{} tensors and {} pieces are left", tensors_left_, pieces_left_);
  const bool sane = Take(&tensor_) && SaneTensor(tensor_, header_.version) &&
                    left_.size() / sizeof(proto::ManifestPieceRecord) >= tensor_.piece_count;
  if (!sane) return Corrupt(fmt::format("tensor record {}", header_.tensor_count - tensors_left_));
  --tensors_left_;
  pieces_left_ = tensor_.piece_count;
  return tensor_;
}

Result<proto::ManifestPieceRecord> ManifestReader::NextPiece() {
  TIER_CHECK(pieces_left_ != 0, "no piece of tensor {:#x} is left", tensor_.tensor);
  const uint64_t offset = uint64_t{tensor_.piece_count - pieces_left_} * kBlockSize;
  proto::ManifestPieceRecord piece{};
  if (!Take(&piece) || !SanePiece(piece, std::min<uint64_t>(kBlockSize, tensor_.size - offset))) {
    return Corrupt(fmt::format("tensor record {}", header_.tensor_count - tensors_left_ - 1));
  }
  const uint16_t device = numbers_.DeviceOf(piece.device);
  if (device == storage::DeviceNumbers::kNone) {
    return Corrupt(fmt::format("the index has no device {}", piece.device));
  }
  piece.device = device;
  --pieces_left_;
  runs_read_ += piece.run_count;
  return piece;
}

bool ManifestReader::SanePiece(const proto::ManifestPieceRecord& piece, uint64_t length) const {
  if (piece.pages != PagesFor(length)) return false;
  if (piece.run_count == 0) return piece.first_run == 0 && IsWithinABlock(piece.page, piece.pages);
  if (piece.run_count < 2 || uint64_t{piece.first_run} + piece.run_count > header_.run_count) return false;
  if (!skipped_ && piece.first_run != runs_read_) return false;
  uint32_t pages = 0;
  for (size_t i = piece.first_run; i < size_t{piece.first_run} + piece.run_count; ++i) {
    const proto::ManifestRunRecord run = RunAt(i);
    if (!IsWithinABlock(run.page, run.pages)) return false;
    pages += run.pages;
  }
  const proto::ManifestRunRecord first = RunAt(piece.first_run);
  return pages == piece.pages && first.block == piece.block && first.page == piece.page;
}

proto::ManifestRunRecord ManifestReader::RunAt(size_t index) const {
  proto::ManifestRunRecord run{};
  std::memcpy(&run, runs_.data() + index * sizeof(run), sizeof(run));
  return run;
}

std::vector<base::PageRun> ManifestReader::RunsOf(const proto::ManifestPieceRecord& piece) const {
  if (piece.run_count == 0) return {{.block = piece.block, .page = piece.page, .pages = piece.pages}};
  std::vector<base::PageRun> runs;
  runs.reserve(piece.run_count);
  for (size_t i = piece.first_run; i < size_t{piece.first_run} + piece.run_count; ++i) {
    const proto::ManifestRunRecord run = RunAt(i);
    runs.push_back({.block = run.block, .page = run.page, .pages = run.pages});
  }
  return runs;
}

void ManifestReader::SkipPieces() {
  skipped_ |= pieces_left_ != 0;
  left_ = left_.subspan(pieces_left_ * sizeof(proto::ManifestPieceRecord));
  pieces_left_ = 0;
}

Result<ManifestKey> ManifestReader::NextKey() {
  TIER_CHECK(keys_left_ != 0 && tensors_left_ == 0, "{} keys and {} tensors are left", keys_left_, tensors_left_);
  proto::ManifestKeyRecord record{};
  ManifestKey key;
  const bool sane = Take(&record) && record.reserved == 0 && record.id != 0 && record.length != 0 &&
                    record.length <= proto::kKeyLengthMax && TakeText(record.length, &key.key);
  if (!sane) return Corrupt(fmt::format("key record {}", header_.key_count - keys_left_));
  --keys_left_;
  key.id = record.id;
  return key;
}

Status ManifestReader::End() const {
  if (!left_.empty()) return Corrupt(fmt::format("{} bytes too many", left_.size()));
  if (skipped_ || runs_read_ == header_.run_count) return {};
  return Corrupt(fmt::format("{} runs too many", header_.run_count - runs_read_));
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, const storage::DeviceNumbers& numbers) {
  ManifestReader reader(bytes, numbers);
  if (Status opened = reader.Open(); !opened) return std::unexpected(opened.error());
  if (Status summed = reader.Sum(SIZE_MAX); !summed) return std::unexpected(summed.error());
  Manifest manifest{.step = reader.step(), .tensors = {}, .keys = {}, .runs = {}};
  while (reader.tensors_left() != 0) {
    const auto record = reader.NextTensor();
    if (!record) return std::unexpected(record.error());
    ManifestTensor& tensor = manifest.tensors.emplace_back(ManifestTensor{.record = *record, .pieces = {}});
    tensor.pieces.reserve(record->piece_count);
    while (reader.pieces_left() != 0) {
      const auto piece = reader.NextPiece();
      if (!piece) return std::unexpected(piece.error());
      tensor.pieces.push_back(*piece);
      if (piece->run_count == 0) continue;
      tensor.pieces.back().first_run = static_cast<uint32_t>(manifest.runs.size());
      for (const base::PageRun run : reader.RunsOf(*piece)) manifest.runs.push_back(run);
    }
  }
  while (reader.keys_left() != 0) {
    Result<ManifestKey> key = reader.NextKey();
    if (!key) return std::unexpected(key.error());
    manifest.keys.push_back(*std::move(key));
  }
  if (Status ended = reader.End(); !ended) return std::unexpected(ended.error());
  return manifest;
}

}  // namespace tier::tiering
