// IndexJournal: which tensors' records changed in this turn. A tensor that is touched many times is put once; one that
// is created and freed within a turn never reaches the index. Engine thread only.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

// Changes handed to the index before they are committed, at most.
inline constexpr uint64_t kIndexStagedMax = uint64_t{1} << 20;

void MarkIndexDirty(Core& core, TensorSlot slot);
// The tensor is being detached: its record goes.
void EraseFromIndex(Core& core, TensorSlot slot);
// Puts what is dirty and commits. False: the index had no room; what was put stays staged and is committed later.
bool CommitIndex(Core& core);
// The record of a tensor (proto/index_record.h), into `record`.
void EncodeRecord(const Core& core, const Tensor& tensor, std::vector<std::byte>* record);

}  // namespace tier::tiering
