// See index_codec.h.
#include "daemon/tiering/tables/index_codec.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace tier::tiering {
namespace {

using proto::IndexCopies;
using proto::IndexPieceRecord;
using proto::IndexTensorRecord;

constexpr uint32_t kHeadFlags = proto::kIndexTensorVisible | proto::kIndexTensorTorn;
constexpr uint8_t kPieceFlags = proto::kIndexPieceDirty | proto::kIndexPieceMixed | proto::kIndexPieceCorrupt;

static_assert(static_cast<uint8_t>(IndexCopies::kCreating) == static_cast<uint8_t>(Copies::kCreating));
static_assert(static_cast<uint8_t>(IndexCopies::kRam) == static_cast<uint8_t>(Copies::kRam));
static_assert(static_cast<uint8_t>(IndexCopies::kSsd) == static_cast<uint8_t>(Copies::kSsd));
static_assert(static_cast<uint8_t>(IndexCopies::kRamSsd) == static_cast<uint8_t>(Copies::kRamSsd));
static_assert(static_cast<uint8_t>(IndexCopies::kTorn) == static_cast<uint8_t>(Copies::kTorn));

bool Torn(const IndexPieceRecord& piece) {
  return piece.copies == static_cast<uint8_t>(IndexCopies::kTorn) || (piece.flags & proto::kIndexPieceMixed) != 0;
}

bool SaneHead(const IndexTensorRecord& head) {
  const bool visible = (head.flags & proto::kIndexTensorVisible) != 0;
  return head.size != 0 && PieceCountOf(head.size) == head.piece_count && head.piece_count <= kPiecesPerTensorMax &&
         (head.flags & ~kHeadFlags) == 0 && visible == (head.session == 0);
}

bool SaneRun(uint32_t page, uint32_t pages, bool there) {
  return there == (pages != 0) && page + pages <= kPagesPerBlock;
}

// `length`: bytes of the piece.
bool SanePiece(const IndexPieceRecord& piece, const IndexTensorRecord& head, uint64_t length) {
  if (piece.copies > static_cast<uint8_t>(IndexCopies::kTorn) || (piece.flags & ~kPieceFlags) != 0) return false;
  if (piece.generation > head.generation || piece.ssd_generation > piece.generation || piece.ssd_device >= 64) {
    return false;
  }
  const auto copies = static_cast<IndexCopies>(piece.copies);
  const bool creating = copies == IndexCopies::kCreating;
  if (creating && (head.flags & proto::kIndexTensorVisible) != 0) return false;
  const bool in_ram = creating ? piece.ram_pages != 0 : copies != IndexCopies::kSsd;
  const bool on_ssd = copies == IndexCopies::kSsd || copies == IndexCopies::kRamSsd;
  if ((piece.flags & proto::kIndexPieceDirty) != 0 && !in_ram) return false;
  if (in_ram && piece.ram_pages < PagesFor(length)) return false;
  if (on_ssd && piece.ssd_pages != PagesFor(length)) return false;
  return SaneRun(piece.ram_page, piece.ram_pages, in_ram) && SaneRun(piece.ssd_page, piece.ssd_pages, on_ssd);
}

// Takes records in the order of their keys; the first wrong one ends it.
class Reader {
 public:
  void Take(const storage::RecordKey& key, std::span<const std::byte> bytes) {
    if (!status_) return;
    status_ = key.record == 0 ? TakeHead(key, bytes) : TakeChunk(key, bytes);
  }
  Result<std::vector<IndexedTensor>> Finish() {
    if (status_) status_ = CheckLast();
    if (!status_) return std::unexpected(status_.error());
    return std::move(tensors_);
  }

 private:
  static Status Corrupt(const storage::TensorKey& key, std::string what) {
    return Fail(Code::kCorrupt, fmt::format("the index is damaged: tensor {:#x} in space {} of job {}: {}", key.tensor,
                                            key.space, key.job, what));
  }
  Status TakeHead(const storage::RecordKey& key, std::span<const std::byte> bytes) {
    if (Status whole = CheckLast(); !whole) return whole;
    IndexTensorRecord head{};
    if (bytes.size() < sizeof(head)) return Corrupt(key.owner(), fmt::format("a head of {} bytes", bytes.size()));
    std::memcpy(&head, bytes.data(), sizeof(head));
    if (!SaneHead(head)) {
      return Corrupt(key.owner(), fmt::format("a head of {} pieces, {} bytes, flags {:#x}, session {}",
                                              head.piece_count, head.size, head.flags, head.session));
    }
    tensors_.push_back({.key = key.owner(), .head = head, .pieces = {}});
    return TakePieces(bytes.subspan(sizeof(head)), IndexChunksOf(head.piece_count) == 0 ? head.piece_count : 0);
  }
  Status TakeChunk(const storage::RecordKey& key, std::span<const std::byte> bytes) {
    if (tensors_.empty() || tensors_.back().key != key.owner()) return Corrupt(key.owner(), "pieces without a head");
    const IndexedTensor& tensor = tensors_.back();
    const size_t have = tensor.pieces.size();
    const size_t left = tensor.head.piece_count - have;
    if (left == 0 || key.record != 1 + have / proto::kIndexChunkPieces) {
      return Corrupt(key.owner(), fmt::format("record {} after {} of {} pieces", key.record, have, have + left));
    }
    return TakePieces(bytes, std::min<size_t>(left, proto::kIndexChunkPieces));
  }
  Status TakePieces(std::span<const std::byte> bytes, size_t count) {
    IndexedTensor& tensor = tensors_.back();
    if (bytes.size() != count * sizeof(IndexPieceRecord)) {
      return Corrupt(tensor.key, fmt::format("{} bytes for {} pieces", bytes.size(), count));
    }
    for (; !bytes.empty(); bytes = bytes.subspan(sizeof(IndexPieceRecord))) {
      IndexPieceRecord& piece = tensor.pieces.emplace_back();
      std::memcpy(&piece, bytes.data(), sizeof(piece));
      const uint64_t begin = (tensor.pieces.size() - 1) * kBlockSize;
      if (SanePiece(piece, tensor.head, std::min<uint64_t>(kBlockSize, tensor.head.size - begin))) continue;
      return Corrupt(tensor.key,
                     fmt::format("piece {}: copies {}, flags {:#x}, {} pages in RAM, {} on SSD, generation {} of {}",
                                 tensor.pieces.size() - 1, piece.copies, piece.flags, piece.ram_pages, piece.ssd_pages,
                                 piece.generation, tensor.head.generation));
    }
    return {};
  }
  Status CheckLast() const {
    if (tensors_.empty()) return {};
    const IndexedTensor& tensor = tensors_.back();
    if (tensor.pieces.size() != tensor.head.piece_count) {
      return Corrupt(tensor.key, fmt::format("{} pieces of {}", tensor.pieces.size(), tensor.head.piece_count));
    }
    const bool torn = std::any_of(tensor.pieces.begin(), tensor.pieces.end(), Torn);
    if (torn == ((tensor.head.flags & proto::kIndexTensorTorn) != 0)) return {};
    return Corrupt(tensor.key, torn ? "a torn piece of a tensor that is not" : "torn without a torn piece");
  }

  std::vector<IndexedTensor> tensors_;
  Status status_;
};

}  // namespace

IndexTensorRecord HeadRecordOf(const Tensor& tensor) {
  return {
      .size = tensor.size,
      .generation = tensor.generation,
      .session = tensor.creator,
      .flags = (tensor.has(kVisible) ? proto::kIndexTensorVisible : 0) | (tensor.torn() ? proto::kIndexTensorTorn : 0),
      .piece_count = tensor.piece_count};
}

IndexPieceRecord PieceRecordOf(const Piece& piece) {
  // Room that holds nothing yet may go to another piece, which changes no record of this one.
  const bool in_ram = !piece.has(kReserved) && piece.copies != Copies::kSsd;
  const base::PageRun ram = in_ram ? piece.ram : base::PageRun{};
  IndexPieceRecord record{};
  record.ram_block = ram.block;
  record.ram_page = ram.page;
  record.ram_pages = ram.pages;
  record.ssd_block = piece.ssd_run.block;
  record.ssd_page = piece.ssd_run.page;
  record.ssd_pages = piece.ssd_run.pages;
  record.crc = piece.crc;
  record.generation = piece.generation;
  record.ssd_generation = piece.ssd_generation;
  record.ssd_device = piece.ssd_device;
  record.copies = static_cast<uint8_t>(piece.copies);
  if (piece.activity == Activity::kLeasedWrite) record.flags |= proto::kIndexPieceDirty;
  if (piece.has(kMixed)) record.flags |= proto::kIndexPieceMixed;
  if (piece.has(kCorrupt)) record.flags |= proto::kIndexPieceCorrupt;
  return record;
}

Result<std::vector<IndexedTensor>> ReadIndex(const storage::Index& index) {
  Reader reader;
  index.Scan([&](const storage::RecordKey& key, std::span<const std::byte> bytes) { reader.Take(key, bytes); });
  return reader.Finish();
}

}  // namespace tier::tiering
