// Catalog: tensors come and go. Engine thread only.
//
// Freeing has two steps. Detach takes the id away at once (the next create may use it). The pieces are freed when no
// lease and no transfer needs them any more, a bounded number in each turn.
#pragma once

#include <span>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Units of work that freeing a piece costs: kFreeCost to give back its memory and its extent, and kUnuseCost more where
// the job has a manifest, among whose extents that one is looked up.
inline constexpr uint32_t kFreeCost = 4;
inline constexpr uint32_t kUnuseCost = 4;
// A request frees kItemsPerTurnMax tensors at once, and the next turns free as many each of what a job's requests have
// left (deferred_free.h). Where they have left more than that, neither has a limit but the work of the turn.
inline constexpr size_t kFreedLaterMax = 1024;
// To remove the record of an update: it leaves the lists of its tensor and its session, and a hash table.
inline constexpr uint32_t kEndUpdateCost = 8;

TensorIndex FindTensor(const Tables& tables, const SessionState& session, uint64_t id, bool shared);
// Whether any namespace of the job has a tensor of this id.
bool HasTensor(const Tables& tables, const JobState& job, uint64_t id);
// A tensor without bytes. REQUIRES: the id is free in that namespace, or `unnamed`.
struct NewTensor {
  uint64_t space = 0;
  uint64_t id = 0;
  uint64_t size = 0;
  SessionState* creator = nullptr;  // Null: it comes from a manifest, and is visible.
  bool unnamed = false;             // No request finds it before NameTensor.
  bool sharded = false;             // REQUIRES: shared, space 0.
  bool transient = false;           // A persist that names no tensors leaves it out.
};
TensorIndex AddTensor(Tables& tables, JobState& job, const NewTensor& tensor);
// Makes the pieces of this range that were not made yet.
void AddPieces(Tables& tables, TensorIndex index, uint32_t first, uint32_t count);
// REQUIRES: unnamed, and the id is free in its namespace.
void NameTensor(Tables& tables, TensorIndex index);
// Called when every byte of it was sealed once.
void MakeVisible(Tables& tables, TensorIndex index);
void Detach(Tables& tables, TensorIndex index);
// Detaches all tensors of the items, which are the job's, each once however often it is named. Returns how many were
// still there.
uint64_t DetachAll(Tables& tables, const JobState& job, std::span<const WaitItem> items);
// Of the tensors that a job's requests free, so many go now.
inline size_t FreedNow(const JobState& job) {
  return job.frees.tensors().size() < kFreedLaterMax ? kItemsPerTurnMax : SIZE_MAX;
}
// The tensor is detached and its last lease may have ended: frees as many pieces as this turn allows, and leaves the
// rest to deferred_free.
void FinishDetached(Tables& tables, TensorIndex index);
// Continues to free the pieces. True: none is left. REQUIRES: detached, no leases.
bool ContinueFree(Tables& tables, TensorIndex index);
// All updates of the tensor end: their records count no more. Removes as many of them as this turn allows, and leaves
// the rest to deferred_free.
void EndAllUpdates(Tables& tables, TensorIndex index);
// Continues to remove the records of updates that have ended. True: none is left, and the list is gone.
bool ContinueEndUpdates(Tables& tables, UpdateListIndex index);
// The transfer of a freed piece ended.
void FinishFreedPiece(Tables& tables, PieceId id);
// This session is still creating the tensor.
bool Creates(const Tables& tables, const SessionState& session, TensorRef tensor);
// Add or subtract a torn piece, or a broken update, in the count that makes the tensor TORN.
void AddTear(Tables& tables, TensorIndex index);
void RemoveTear(Tables& tables, TensorIndex index);

}  // namespace tier::tiering
