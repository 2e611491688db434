// See replace.h.
#include "daemon/tiering/requests/replace.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/capacity.h"
#include "daemon/tiering/requests/need.h"

namespace tier::tiering {
namespace {

const Tensor& NewOf(const Core& core, const Ask& ask) { return core.tensors[ask.items.front().tensor.slot]; }

// The tensor whose place it takes, as things stand.
TensorSlot OldOf(const Core& core, const Ask& ask) {
  return ReplacedBy(core, *ask.session, NewOf(core, ask).id, (ask.flags & proto::kFlagShared) != 0);
}

// Calls visit(piece) for each piece whose RAM is free once its tensor is detached.
template <typename Visit>
void ForEachVacated(const Core& core, TensorSlot slot, Visit visit) {
  if (slot == kNoTensor || core.tensors[slot].lease_count != 0) return;
  const Tensor& tensor = core.tensors[slot];
  if (tensor.piece_count > kPlacePiecesMax) return;
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const Piece& piece = core.PieceOf(tensor, k);
    if (piece.ram && !piece.in_transfer()) visit(piece);
  }
}

// Runs out of the pool for every piece of the ask that has none. False: not all; what was taken stands in `taken`.
bool TakeMissing(Core& core, const Ask& ask, std::vector<base::PageRun>* taken) {
  JobState& job = *ask.session->job;
  const Need need = NeedOf(core, ask);
  if (TakeRuns(core, job, static_cast<uint32_t>(need.blocks), static_cast<uint32_t>(need.slot_pages))) {
    *taken = core.runs;
    return true;
  }
  const WaitItem& item = ask.items.front();
  const Tensor& tensor = NewOf(core, ask);
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (core.PieceOf(tensor, k).ram) continue;
    const base::PageRun run = TakeRun(core, job, static_cast<uint32_t>(PagesFor(tensor.piece_length(k))), false);
    if (!run) return false;
    taken->push_back(run);
  }
  return true;
}

// Runs for every piece of the ask that has none, were the old tensor gone. Empty: there are not enough. The pool is as
// it was afterwards: what was taken out of it can be taken again once the old tensor is gone.
std::vector<base::PageRun> PlanRuns(Core& core, const Ask& ask, TensorSlot old) {
  JobState& job = *ask.session->job;
  std::vector<base::PageRun> lent;
  ForEachVacated(core, old, [&](const Piece& piece) { lent.push_back(piece.ram); });
  for (const base::PageRun run : lent) job.pool.Free(run);
  std::vector<base::PageRun> planned;
  const bool enough = TakeMissing(core, ask, &planned);
  for (const base::PageRun run : planned) job.pool.Free(run);
  for (const base::PageRun run : lent) {
    TIER_CHECK(job.pool.TryTake(run), "{} pages of block {} cannot be taken back", run.pages, run.block);
  }
  if (!enough) planned.clear();
  return planned;
}

}  // namespace

TensorSlot ReplacedBy(const Core& core, const SessionState& session, uint64_t id, bool shared) {
  const TensorSlot present = FindTensor(core, session, id, shared);
  if (present == kNoTensor) return kNoTensor;
  const Tensor& tensor = core.tensors[present];
  const bool ours = tensor.has(kVisible) || tensor.creator == static_cast<uint64_t>(session.id);
  return ours ? present : kNoTensor;
}

bool AwaitsPlace(const Core& core, const Ask& ask) {
  return ask.op == proto::Op::kCreate && core.Alive(ask.items.front().tensor) && NewOf(core, ask).has(kUnnamed);
}

std::optional<Refusal> PlaceRefusal(const Core& core, const Ask& ask) {
  const Tensor& tensor = NewOf(core, ask);
  const JobState& job = *tensor.job;
  const TensorSlot old = OldOf(core, ask);
  const TensorSlot present = core.table.Find({static_cast<uint64_t>(job.id), tensor.space, tensor.id});
  if (present != kNoTensor && present != old) return ExistsRefusal(core.tensors[present], tensor.size);
  const uint64_t freed = old == kNoTensor ? 0 : PagesOf(core.tensors[old].size);
  return CapacityRefusal(core, job, {.tensor = tensor.id, .size = tensor.size}, job.logical_pages - freed);
}

Vacated VacatedBy(const Core& core, const Ask& ask) {
  Vacated vacated;
  if (!AwaitsPlace(core, ask)) return vacated;
  ForEachVacated(core, OldOf(core, ask), [&](const Piece& piece) {
    vacated.pages += piece.ram.pages;
    vacated.held_pages += Held(piece) ? piece.ram.pages : 0;
  });
  return vacated;
}

TensorRef PlaceToKeep(const Core& core, const Ask& ask) {
  if (!AwaitsPlace(core, ask)) return {};
  const TensorSlot old = OldOf(core, ask);
  if (old == kNoTensor || core.tensors[old].piece_count > kPlacePiecesMax) return {};
  return core.tensors[old].lease_count != 0 ? TensorRef{} : core.RefOf(old);
}

uint32_t PlacePieces(const Core& core, const Ask& ask) {
  const TensorSlot old = AwaitsPlace(core, ask) ? OldOf(core, ask) : kNoTensor;
  const uint32_t count = old == kNoTensor ? 0 : core.tensors[old].piece_count;
  return count > kPlacePiecesMax ? 0 : count;
}

bool ReserveInPlace(Core& core, const Ask& ask) {
  JobState& job = *ask.session->job;
  const uint64_t vacated = VacatedBy(core, ask).pages;
  if (vacated == 0 || vacated + job.pool.free_pages() < NeedOf(core, ask).pages()) return false;
  const TensorSlot old = OldOf(core, ask);
  const std::vector<base::PageRun> runs = PlanRuns(core, ask, old);
  if (runs.empty()) return false;
  // All of it goes now, whatever is left of the turn's work.
  core.work.Charge(core.tensors[old].piece_count);
  core.work.Refund(core.tensors[old].piece_count);
  TakePlace(core, ask);
  const WaitItem& item = ask.items.front();
  const Tensor& tensor = core.tensors[item.tensor.slot];
  size_t next = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    if (core.pieces[id].ram) continue;
    TIER_CHECK(next < runs.size() && job.pool.TryTake(runs[next]), "run {} of {}", next, runs.size());
    GiveRam(core, id, runs[next++]);
  }
  TIER_CHECK(next == runs.size(), "{} runs for {} pieces", runs.size(), next);
  core.jobs.NeedMaintenance(job);
  return true;
}

void TakePlace(Core& core, const Ask& ask) {
  if (!AwaitsPlace(core, ask)) return;
  const TensorSlot old = OldOf(core, ask);
  if (old != kNoTensor) Detach(core, old);
  NameTensor(core, ask.items.front().tensor.slot);
}

}  // namespace tier::tiering
