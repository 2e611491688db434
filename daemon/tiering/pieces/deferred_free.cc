// See deferred_free.h.
#include "daemon/tiering/pieces/deferred_free.h"

#include <utility>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

void ContinueFreedTensors(Tables& tables, JobState& job, size_t most) {
  for (size_t i = 0; i < most && !job.frees.tensors().empty(); ++i) {
    if (!ContinueFree(tables, job.frees.tensors().front())) return;
    job.frees.EndOldestTensor();
  }
}

void ContinueEndedUpdates(Tables& tables, JobState& job) {
  while (!job.frees.updates().empty()) {
    if (!ContinueEndUpdates(tables, job.frees.updates().front())) return;
    job.frees.EndOldestUpdates();
  }
}

void ContinueFreesOf(Tables& tables, JobState& job) {
  ContinueFreedTensors(tables, job, FreedNow(job));
  while (job.frees.any_namespace() && !tables.work.exhausted()) {
    const PendingFrees::Namespace freed = job.frees.next_namespace();
    if (freed.head == kNoTensor) {
      job.frees.EndNamespace(freed.space);
      continue;
    }
    const Tensor& tensor = tables.tensors[freed.head];
    TIER_CHECK(tensor.space == freed.space && tensor.previous == kNoTensor,
               "tensor {} of space {} among the freed of {}", tensor.id, tensor.space, freed.space);
    tables.work.TrySpend();
    Detach(tables, freed.head);  // Moves the head on.
  }
  ContinueEndedUpdates(tables, job);  // Last: they hold none of the memory that requests wait for.
  if (!job.frees.any()) return;
  tables.jobs.NoteFrees(job);
  tables.turn.NoteProgress();
}

}  // namespace

void QueueFree(Tables& tables, JobState& job, TensorIndex* head, uint64_t space) {
  if (*head == kNoTensor) return;
  job.frees.AddNamespace(std::exchange(*head, kNoTensor), space);
  ContinueFreesOf(tables, job);
}

void FreeForRoom(Tables& tables, JobState& job) { ContinueFreedTensors(tables, job, SIZE_MAX); }

void ContinueFrees(Tables& tables) {
  tables.jobs.ListFreeing(&tables.scratch.freeing_jobs);
  size_t count = tables.scratch.freeing_jobs.size();
  for (JobState* job : tables.scratch.freeing_jobs) {
    tables.work.Divide(count--, [&] { ContinueFreesOf(tables, *job); });
  }
  // A part may be less than one piece costs.
  for (JobState* job : tables.scratch.freeing_jobs) ContinueFreesOf(tables, *job);
}

}  // namespace tier::tiering
