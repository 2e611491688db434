// Catalog: tensors come and go. Engine thread only.
//
// Freeing is two steps: Detach takes the id away at once (the next create may use it); the pieces go when no lease and
// no transfer needs them any more, which is now if there are none, and not more of them than a turn frees.
#pragma once

#include <span>

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

TensorSlot FindTensor(const Core& core, const SessionState& session, uint64_t id, bool shared);
// Whether any namespace of the job has one of this id.
bool HasTensor(const Core& core, const JobState& job, uint64_t id);
// A tensor whose bytes nobody has yet. REQUIRES: the id is free in that namespace, or `unnamed`.
struct NewTensor {
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t size = 0;
  SessionState* creator = nullptr;  // Null: it is replayed and visible.
  bool unnamed = false;             // Nobody finds it before NameTensor.
};
TensorSlot AddTensor(Core& core, JobState& job, const NewTensor& tensor);
// Makes those of the pieces that were not made yet.
void AddPieces(Core& core, TensorSlot slot, uint32_t first, uint32_t count);
// REQUIRES: unnamed, and the id is free in its namespace.
void NameTensor(Core& core, TensorSlot slot);
// Every byte of it was sealed once.
void MakeVisible(Core& core, TensorSlot slot);
void Detach(Core& core, TensorSlot slot);
// All tensors of the items, each once however often it is named. Returns how many were still there.
uint64_t DetachAll(Core& core, std::span<const WaitItem> items);
// Detached, and the last lease may have ended: frees what can be freed in this turn, and leaves the rest to the
// graveyard.
void FinishDetached(Core& core, TensorSlot slot);
// Goes on with that. True: nothing is left. REQUIRES: detached, no leases.
bool ContinueFree(Core& core, TensorSlot slot);
// The transfer of a freed piece ended.
void FinishFreedPiece(Core& core, PieceId id);
// The session that creates it creates it still.
bool Creates(const Core& core, const SessionState& session, TensorRef tensor);
// Counts a torn piece, or a broken update, in or out of what makes its tensor TORN.
void AddTear(Core& core, TensorSlot slot);
void RemoveTear(Core& core, TensorSlot slot);
// The tensor that the session's listing goes on with (requests/enumeration); it moves on when that tensor is freed.
void SetEnumerationCursor(SessionState& session, TensorSlot slot);

}  // namespace tier::tiering
