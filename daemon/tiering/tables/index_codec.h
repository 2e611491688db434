// IndexCodec: what the ram index says of tensors, as records and back (layout: proto/index_record.h). Reading trusts
// nothing: the records are those of an earlier daemon. Thread-compatible.
//
// A tensor of few pieces is one record. Of a larger one the head stands by itself and its pieces lie in chunks, so that
// a change of one piece puts one small record, however many there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/storage/index.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/index_record.h"
#include "proto/result.h"

namespace tier::tiering {

// Records of chunks beside the head. 0: the pieces stand in the head's record.
constexpr uint32_t IndexChunksOf(uint32_t piece_count) {
  if (piece_count <= proto::kIndexChunkPieces) return 0;
  return (piece_count + proto::kIndexChunkPieces - 1) / proto::kIndexChunkPieces;
}

proto::IndexTensorRecord HeadRecordOf(const Tensor& tensor);
proto::IndexPieceRecord PieceRecordOf(const Piece& piece);

struct IndexedTensor {
  storage::TensorKey key;
  proto::IndexTensorRecord head{};
  std::vector<proto::IndexPieceRecord> pieces;
};

// Every tensor of the index, in the order of keys. CORRUPT, with tensor and record: one is missing, too many, of a
// wrong size, or contradicts itself or the head; nothing is read in part.
Result<std::vector<IndexedTensor>> ReadIndex(const storage::Index& index);

}  // namespace tier::tiering
