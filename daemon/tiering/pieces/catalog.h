// Catalog: tensors come and go. Engine thread only.
//
// Freeing is two steps: Detach takes the id away at once (the next create may use it); the pieces go when no lease and
// no transfer needs them any more, which is now if there are none, and not more of them than a turn frees.
#pragma once

#include <span>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Units of work that freeing a piece costs: its memory and its extent are given back. The second is looked up among
// the extents that the job's manifest names, where it has one.
inline constexpr uint32_t kFreeCost = 4;
inline constexpr uint32_t kUnuseCost = 4;

TensorIndex FindTensor(const Tables& tables, const SessionState& session, uint64_t id, bool shared);
// Whether any namespace of the job has one of this id.
bool HasTensor(const Tables& tables, const JobState& job, uint64_t id);
// A tensor whose bytes nobody has yet. REQUIRES: the id is free in that namespace, or `unnamed`.
struct NewTensor {
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t size = 0;
  SessionState* creator = nullptr;  // Null: it is replayed and visible.
  bool unnamed = false;             // Nobody finds it before NameTensor.
  bool sharded = false;             // REQUIRES: shared, space 0.
};
TensorIndex AddTensor(Tables& tables, JobState& job, const NewTensor& tensor);
// Makes those of the pieces that were not made yet.
void AddPieces(Tables& tables, TensorIndex index, uint32_t first, uint32_t count);
// REQUIRES: unnamed, and the id is free in its namespace.
void NameTensor(Tables& tables, TensorIndex index);
// Every byte of it was sealed once.
void MakeVisible(Tables& tables, TensorIndex index);
void Detach(Tables& tables, TensorIndex index);
// All tensors of the items, each once however often it is named. Returns how many were still there.
uint64_t DetachAll(Tables& tables, std::span<const WaitItem> items);
// Detached, and the last lease may have ended: frees what can be freed in this turn, and leaves the rest to
// deferred_free.
void FinishDetached(Tables& tables, TensorIndex index);
// Goes on with that. True: nothing is left. REQUIRES: detached, no leases.
bool ContinueFree(Tables& tables, TensorIndex index);
// The transfer of a freed piece ended.
void FinishFreedPiece(Tables& tables, PieceId id);
// The session that creates it creates it still.
bool Creates(const Tables& tables, const SessionState& session, TensorRef tensor);
// Counts a torn piece, or a broken update, in or out of what makes its tensor TORN.
void AddTear(Tables& tables, TensorIndex index);
void RemoveTear(Tables& tables, TensorIndex index);

}  // namespace tier::tiering
