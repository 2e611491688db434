// IndexJournal: which records changed in this turn. A record that is touched many times is put once; a tensor that is
// created and freed within a turn never reaches the index. Engine thread only.
//
// What changes of one tensor is in one commit: no commit shows a head and pieces of different turns.
#pragma once

#include "daemon/tiering/tables/core.h"
#include "daemon/tiering/tables/index_codec.h"

namespace tier::tiering {

// Changes handed to the index before they are committed, at most.
inline constexpr uint64_t kIndexStagedMax = uint64_t{1} << 20;

// Of Tensor::dirty_chunks.
constexpr uint32_t DirtyChunkWords(uint32_t piece_count) { return (IndexChunksOf(piece_count) + 63) / 64; }

// The tensor's own figures changed: generation, flags, creator.
void MarkHeadDirty(Core& core, TensorSlot slot);
// What the index says of this piece changed, and of no other.
void MarkPieceDirty(Core& core, PieceId id);
// The tensor is being detached: its records go.
void EraseFromIndex(Core& core, TensorSlot slot);
// Whether the records of a new tensor of so many pieces fit beside what this turn changes already. Others of the turn
// may still come between.
bool IndexHasRoom(const Core& core, uint32_t piece_count);
// Puts what is dirty and commits. False: the index had no room; what was put stays staged and is committed later.
bool CommitIndex(Core& core);

}  // namespace tier::tiering
