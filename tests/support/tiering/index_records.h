// The records of one right tensor, sealed and on SSD, as an engine would have put them: for tests that then damage
// them.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "daemon/tiering/tables/index_codec.h"
#include "tests/support/storage/fake_index.h"

namespace tier::tiering::testing {

template <typename Record>
void AppendRecord(const Record& record, std::vector<std::byte>* bytes) {
  const auto raw = std::as_bytes(std::span(&record, 1));
  bytes->insert(bytes->end(), raw.begin(), raw.end());
}

// `piece_count` pieces, all of them whole.
inline storage::testing::IndexContents RecordsOfTensor(const storage::TensorKey& key, uint32_t piece_count) {
  storage::testing::IndexContents records;
  proto::IndexTensorRecord head{};
  head.size = uint64_t{piece_count} * kBlockSize;
  head.generation = 7;
  head.flags = proto::kIndexTensorVisible;
  head.piece_count = piece_count;
  AppendRecord(head, &records[{key.job, key.space, key.tensor, 0}]);
  for (uint32_t k = 0; k < piece_count; ++k) {
    proto::IndexPieceRecord piece{};
    piece.ssd_block = k;
    piece.ssd_pages = kPagesPerBlock;
    piece.generation = 3;
    piece.ssd_generation = 3;
    piece.copies = static_cast<uint8_t>(proto::IndexCopies::kSsd);
    const uint32_t record = IndexChunksOf(piece_count) == 0 ? 0 : 1 + k / proto::kIndexChunkPieces;
    AppendRecord(piece, &records[{key.job, key.space, key.tensor, record}]);
  }
  return records;
}

}  // namespace tier::tiering::testing
