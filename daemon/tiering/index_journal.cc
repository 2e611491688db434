// See index_journal.h.
#include "daemon/tiering/index_journal.h"

#include <cstring>

#include "proto/index_record.h"

namespace tier::tiering {
namespace {

storage::TensorKey KeyOf(const Tensor& tensor) {
  return {static_cast<uint64_t>(tensor.job->id), tensor.space, tensor.id};
}

proto::IndexPieceRecord RecordOf(const Piece& piece) {
  proto::IndexPieceRecord record{};
  record.ram_block = piece.ram.block;
  record.ram_page = piece.ram.page;
  record.ram_pages = piece.ram.pages;
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

// A full index is tried again with what is staged already; nothing is added to it, so that what waits stays bounded.
bool CommitStaged(Core& core) {
  if (core.index_staged == 0) return true;
  core.index_full = !core.ports.index.Commit().has_value();
  if (!core.index_full) core.index_staged = 0;
  return !core.index_full;
}

static_assert(static_cast<uint8_t>(proto::IndexCopies::kCreating) == static_cast<uint8_t>(Copies::kCreating));
static_assert(static_cast<uint8_t>(proto::IndexCopies::kRamSsd) == static_cast<uint8_t>(Copies::kRamSsd));
static_assert(static_cast<uint8_t>(proto::IndexCopies::kTorn) == static_cast<uint8_t>(Copies::kTorn));

}  // namespace

void MarkIndexDirty(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.has(kIndexDirty | kDetached | kUnnamed)) return;
  tensor.set(kIndexDirty);
  core.index_dirty.push_back(slot);
}

void EraseFromIndex(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.has(kIndexed)) {
    core.ports.index.Erase(KeyOf(tensor));
    // Early, in parts: what a turn tells is committed before it is told, which is all that matters.
    if (++core.index_staged >= kIndexStagedMax) CommitStaged(core);
  }
  tensor.clear(kIndexed);
}

void EncodeRecord(const Core& core, const Tensor& tensor, std::vector<std::byte>* record) {
  record->resize(sizeof(proto::IndexTensorRecord) + tensor.piece_count * sizeof(proto::IndexPieceRecord));
  proto::IndexTensorRecord head{};
  head.size = tensor.size;
  head.generation = tensor.generation;
  head.session = tensor.creator;
  head.version = proto::kIndexRecordVersion;
  head.flags = (tensor.has(kVisible) ? proto::kIndexTensorVisible : 0) | (tensor.torn() ? proto::kIndexTensorTorn : 0);
  head.piece_count = tensor.piece_count;
  std::byte* at = record->data();
  std::memcpy(at, &head, sizeof(head));
  at += sizeof(head);
  for (uint32_t number = 0; number < tensor.piece_count; ++number, at += sizeof(proto::IndexPieceRecord)) {
    const proto::IndexPieceRecord piece = RecordOf(core.PieceOf(tensor, number));
    std::memcpy(at, &piece, sizeof(piece));
  }
}

bool CommitIndex(Core& core) {
  if (core.index_full && !CommitStaged(core)) return false;
  size_t put = 0;
  for (; put < core.index_dirty.size(); ++put) {
    Tensor& tensor = core.tensors[core.index_dirty[put]];
    if (!tensor.has(kIndexDirty)) continue;  // Detached since.
    if (core.index_staged >= kIndexStagedMax && !CommitStaged(core)) break;
    tensor.clear(kIndexDirty);
    EncodeRecord(core, tensor, &core.record_scratch);
    core.ports.index.Put(KeyOf(tensor), core.record_scratch);
    tensor.set(kIndexed);
    ++core.index_staged;
  }
  core.index_dirty.erase(core.index_dirty.begin(), core.index_dirty.begin() + static_cast<ptrdiff_t>(put));
  return CommitStaged(core);
}

}  // namespace tier::tiering
