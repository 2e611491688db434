// See graveyard.h.
#include "daemon/tiering/pieces/graveyard.h"

#include <utility>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

void FreeAllRemains(Core& core, JobState& job) {
  while (!job.remains.empty()) {
    const TensorSlot slot = job.remains.front();
    const uint32_t before = core.tensors[slot].piece_count;
    const bool gone = FreeRemains(core, slot);
    core.remains -= before - (gone ? 0 : core.tensors[slot].piece_count);
    if (!gone) return;
    job.remains.pop_front();
  }
}

void EmptyGravesOf(Core& core, JobState& job) {
  FreeAllRemains(core, job);
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
  const auto has_some = [](const JobState& job) { return !job.graves.empty() || !job.remains.empty(); };
  uint32_t count = 0;
  for (const auto& [id, job] : core.jobs) count += has_some(*job) ? 1 : 0;
  for (const auto& job : core.closing_jobs) count += has_some(*job) ? 1 : 0;
  const auto empty = [&](JobState& job) {
    if (has_some(job)) SpendPart(core, count--, [&] { EmptyGravesOf(core, job); });
  };
  for (const auto& [id, job] : core.jobs) empty(*job);
  for (const auto& job : core.closing_jobs) empty(*job);
}

}  // namespace tier::tiering
