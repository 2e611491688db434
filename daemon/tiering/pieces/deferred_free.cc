// See deferred_free.h.
#include "daemon/tiering/pieces/deferred_free.h"

#include <utility>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

void ContinueFreedTensors(Core& core, JobState& job) {
  while (!job.freed_tensors.empty()) {
    if (!ContinueFree(core, job.freed_tensors.front())) return;
    job.freed_tensors.pop_front();
  }
}

void ContinueFreesOf(Core& core, JobState& job) {
  ContinueFreedTensors(core, job);
  while (!job.freed_namespaces.empty() && !core.work.exhausted()) {
    FreedNamespace& freed = job.freed_namespaces.back();
    if (freed.head == kNoTensor) {
      job.freed_namespaces.pop_back();
      continue;
    }
    const Tensor& tensor = core.tensors[freed.head];
    TIER_CHECK(tensor.space == freed.space && tensor.previous == kNoTensor, "tensor {} of space {} in grave {}",
               tensor.id, tensor.space, freed.space);
    core.work.TrySpend();
    Detach(core, freed.head);  // Moves the head on.
  }
  if (!job.has_pending_frees()) return;
  core.jobs.NoteFrees(job);
  core.made_progress = true;
}

}  // namespace

void QueueFree(Core& core, JobState& job, TensorSlot* head, uint64_t space) {
  if (*head == kNoTensor) return;
  job.freed_namespaces.push_back({.head = std::exchange(*head, kNoTensor), .space = space});
  ContinueFreesOf(core, job);
}

void ContinueFrees(Core& core) {
  core.jobs.ListFreeing(&core.freeing_jobs);
  size_t count = core.freeing_jobs.size();
  for (JobState* job : core.freeing_jobs) {
    core.work.Divide(count--, [&] { ContinueFreesOf(core, *job); });
  }
}

}  // namespace tier::tiering
