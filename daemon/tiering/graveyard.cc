// See graveyard.h.
#include "daemon/tiering/graveyard.h"

#include <utility>

#include "daemon/tiering/catalog.h"

namespace tier::tiering {
namespace {

void EmptyGravesOf(Core& core, JobState& job) {
  while (!job.remains.empty() && FreeRemains(core, job.remains.back())) job.remains.pop_back();
  while (!job.graves.empty() && core.burials_left != 0) {
    Grave& grave = job.graves.back();
    if (grave.head == kNoTensor) {
      job.graves.pop_back();
      continue;
    }
    const Tensor& tensor = core.tensors[grave.head];
    TIER_CHECK(tensor.space == grave.space && tensor.previous == kNoTensor, "tensor {} of space {} in grave {}",
               tensor.id, tensor.space, grave.space);
    --core.burials_left;
    Detach(core, grave.head);  // Moves the head on.
  }
  if (job.burying()) core.acted = true;
}

}  // namespace

void Bury(Core& core, JobState& job, TensorSlot* head, uint64_t space) {
  if (*head == kNoTensor) return;
  job.graves.push_back({.head = std::exchange(*head, kNoTensor), .space = space});
  EmptyGravesOf(core, job);
}

void EmptyGraves(Core& core) {
  for (const auto& [id, job] : core.jobs) EmptyGravesOf(core, *job);
  for (const auto& job : core.closing_jobs) EmptyGravesOf(core, *job);
}

}  // namespace tier::tiering
