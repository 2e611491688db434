// See index_journal.h.
#include "daemon/tiering/tables/index_journal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

namespace tier::tiering {
namespace {

constexpr uint32_t kChunk = proto::kIndexChunkPieces;
static_assert(IndexChunksOf(kPiecesPerTensorMax) + 1 < kIndexStagedMax);

storage::RecordKey KeyOf(const Tensor& tensor, uint32_t record) {
  return {.job = static_cast<uint64_t>(tensor.job->id), .space = tensor.space, .tensor = tensor.id, .record = record};
}

std::span<uint64_t> DirtyChunks(const Tensor& tensor) {
  return {tensor.dirty_chunks.get(), DirtyChunkWords(tensor.piece_count)};
}

void List(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.has(kIndexDirty | kUnnamed)) return;  // Without a name it has no records: they come with it.
  tensor.set(kIndexDirty);
  core.index_dirty.push_back(slot);
}

// A full index is tried again with what is staged already; nothing is added to it, so that what waits stays bounded.
bool CommitStaged(Core& core) {
  if (core.index_staged == 0) return true;
  core.index_full = !core.ports.index.Commit().has_value();
  if (!core.index_full) core.index_staged = 0;
  return !core.index_full;
}

// Early, in parts: what a turn tells is committed before it is told, which is all that matters.
bool MakeRoom(Core& core, uint64_t changes) {
  return core.index_staged + changes <= kIndexStagedMax || CommitStaged(core);
}

uint64_t DirtyRecords(const Tensor& tensor) {
  uint64_t records = tensor.has(kHeadDirty) ? 1 : 0;
  for (const uint64_t word : DirtyChunks(tensor)) records += static_cast<uint64_t>(std::popcount(word));
  return records;
}

template <typename Record>
void Append(const Record& record, std::vector<std::byte>* bytes) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof(record));
  std::memcpy(bytes->data() + at, &record, sizeof(record));
}

void Put(Core& core, const Tensor& tensor, uint32_t record, uint32_t first_piece, uint32_t piece_count) {
  for (uint32_t k = first_piece; k < first_piece + piece_count; ++k) {
    Append(PieceRecordOf(core.PieceOf(tensor, k)), &core.record_scratch);
  }
  core.ports.index.Put(KeyOf(tensor, record), core.record_scratch);
  core.record_scratch.clear();
  ++core.index_staged;
}

void PutDirty(Core& core, Tensor& tensor) {
  if (tensor.has(kHeadDirty)) {
    Append(HeadRecordOf(tensor), &core.record_scratch);
    Put(core, tensor, 0, 0, IndexChunksOf(tensor.piece_count) == 0 ? tensor.piece_count : 0);
  }
  const std::span<uint64_t> words = DirtyChunks(tensor);
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint64_t word = std::exchange(words[i], 0); word != 0; word &= word - 1) {
      const auto chunk = static_cast<uint32_t>(i * 64 + static_cast<size_t>(std::countr_zero(word)));
      Put(core, tensor, 1 + chunk, chunk * kChunk, std::min(kChunk, tensor.piece_count - chunk * kChunk));
    }
  }
  tensor.clear(kIndexDirty | kHeadDirty);
  tensor.set(kIndexed);
}

}  // namespace

void MarkHeadDirty(Core& core, TensorSlot slot) {
  if (core.tensors[slot].has(kDetached)) return;
  core.tensors[slot].set(kHeadDirty);
  List(core, slot);
}

void MarkPieceDirty(Core& core, PieceId id) {
  const Piece& piece = core.pieces[id];
  const Tensor& tensor = core.tensors[piece.tensor];
  if (tensor.dirty_chunks == nullptr) return MarkHeadDirty(core, piece.tensor);
  if (tensor.has(kDetached)) return;
  const uint32_t chunk = piece.number / kChunk;
  tensor.dirty_chunks[chunk / 64] |= uint64_t{1} << chunk % 64;
  List(core, piece.tensor);
}

void EraseFromIndex(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.has(kIndexed)) {
    const uint32_t records = 1 + IndexChunksOf(tensor.piece_count);
    MakeRoom(core, records);
    for (uint32_t record = 0; record < records; ++record) core.ports.index.Erase(KeyOf(tensor, record));
    core.index_staged += records;
  }
  tensor.clear(kIndexed | kIndexDirty | kHeadDirty);
}

bool IndexHasRoom(const Core& core, uint32_t piece_count) {
  if (core.index_full) return false;
  return core.ports.index.HasRoom(core.index_dirty.size() + 1 + IndexChunksOf(piece_count));
}

bool CommitIndex(Core& core) {
  if (core.index_full && !CommitStaged(core)) return false;
  size_t put = 0;
  for (; put < core.index_dirty.size(); ++put) {
    Tensor& tensor = core.tensors[core.index_dirty[put]];
    if (!tensor.has(kIndexDirty)) continue;  // Detached since.
    if (!MakeRoom(core, DirtyRecords(tensor))) break;
    PutDirty(core, tensor);
  }
  core.index_dirty.erase(core.index_dirty.begin(), core.index_dirty.begin() + static_cast<ptrdiff_t>(put));
  return core.index_dirty.empty() && CommitStaged(core);
}

}  // namespace tier::tiering
