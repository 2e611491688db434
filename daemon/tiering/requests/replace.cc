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

const Tensor& NewOf(const Tables& tables, const Ask& ask) { return tables.tensors[ask.items.front().tensor.index]; }

// The tensor whose place it takes, as things stand.
TensorIndex OldOf(const Tables& tables, const Ask& ask) {
  return ReplacedBy(tables, *ask.session, NewOf(tables, ask).id, (ask.flags & proto::kFlagShared) != 0);
}

// Calls visit(piece) for each piece whose RAM is free once its tensor is detached.
template <typename Visit>
void ForEachVacated(const Tables& tables, TensorIndex index, Visit visit) {
  if (index == kNoTensor || tables.tensors[index].lease_count != 0) return;
  const Tensor& tensor = tables.tensors[index];
  if (tensor.piece_count > kPlacePiecesMax) return;
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const Piece& piece = tables.PieceOf(tensor, k);
    if (piece.ram && !piece.in_transfer() && !tables.BeingCopied(piece)) visit(piece);
  }
}

// Runs out of the pool for every piece of the ask that has none. False: not all; what was taken stands in `taken`.
bool TakeMissing(Tables& tables, const Ask& ask, std::vector<base::PageRun>* taken) {
  JobState& job = *ask.session->job;
  const Need need = NeedOf(tables, ask);
  if (TakeRuns(tables, job, static_cast<uint32_t>(need.blocks), static_cast<uint32_t>(need.slot_pages))) {
    *taken = tables.scratch.runs;
    return true;
  }
  const WaitItem& item = ask.items.front();
  const Tensor& tensor = NewOf(tables, ask);
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (tables.PieceOf(tensor, k).ram) continue;
    if (!TakeRoom(tables, job, PagesOfPiece(tensor, k), {.may_evict = MayEvict::kNothing}, taken)) return false;
  }
  return true;
}

// Runs for every piece of the ask that has none, were the old tensor gone. Empty: there are not enough. The pool is as
// it was afterwards: what was taken out of it can be taken again once the old tensor is gone.
std::vector<base::PageRun> PlanRuns(Tables& tables, const Ask& ask, TensorIndex old) {
  JobState& job = *ask.session->job;
  std::vector<base::PageRun> lent;
  ForEachVacated(tables, old, [&](const Piece& piece) {
    const auto runs = tables.RunsOf(piece);
    lent.insert(lent.end(), runs.begin(), runs.end());
  });
  for (const base::PageRun run : lent) job.pool.Free(run);
  std::vector<base::PageRun> planned;
  const bool enough = TakeMissing(tables, ask, &planned);
  for (const base::PageRun run : planned) job.pool.Free(run);
  for (const base::PageRun run : lent) {
    TIER_CHECK(job.pool.TryTake(run), "{} pages of block {} cannot be taken back", run.pages, run.block);
  }
  if (!enough) planned.clear();
  return planned;
}

}  // namespace

TensorIndex ReplacedBy(const Tables& tables, const SessionState& session, uint64_t id, bool shared) {
  const TensorIndex present = FindTensor(tables, session, id, shared);
  if (present == kNoTensor) return kNoTensor;
  const Tensor& tensor = tables.tensors[present];
  const bool ours = tensor.has(kVisible) || tensor.creator == static_cast<uint64_t>(session.id);
  return ours ? present : kNoTensor;
}

bool AwaitsPlace(const Tables& tables, const Ask& ask) {
  return ask.op == proto::Op::kCreate && tables.Alive(ask.items.front().tensor) && NewOf(tables, ask).has(kUnnamed);
}

std::optional<Refusal> PlaceRefusal(Tables& tables, const Ask& ask) {
  const Tensor& tensor = NewOf(tables, ask);
  const JobState& job = tables.JobOf(tensor);
  const TensorIndex old = OldOf(tables, ask);
  const TensorIndex present = tables.names.Find({tensor.job, tensor.space, tensor.id});
  if (present != kNoTensor && present != old) return ExistsRefusal(tables.tensors[present], tensor.size);
  const uint64_t freed = old == kNoTensor ? 0 : PagesOf(tables.tensors[old].size);
  return CapacityRefusal(tables, job, {.tensor = tensor.id, .size = tensor.size, .replaced_pages = freed},
                         job.pages.logical() - freed);
}

Vacated VacatedBy(const Tables& tables, const Ask& ask) {
  Vacated vacated;
  if (!AwaitsPlace(tables, ask)) return vacated;
  ForEachVacated(tables, OldOf(tables, ask), [&](const Piece& piece) {
    vacated.pages += piece.ram.pages;
    vacated.held_pages += Held(piece) ? piece.ram.pages : 0;
  });
  return vacated;
}

TensorRef PlaceToKeep(const Tables& tables, const Ask& ask) {
  if (!AwaitsPlace(tables, ask)) return {};
  const TensorIndex old = OldOf(tables, ask);
  if (old == kNoTensor || tables.tensors[old].piece_count > kPlacePiecesMax) return {};
  return tables.tensors[old].lease_count != 0 ? TensorRef{} : tables.RefOf(old);
}

uint32_t PlacePieces(const Tables& tables, const Ask& ask) {
  const TensorIndex old = AwaitsPlace(tables, ask) ? OldOf(tables, ask) : kNoTensor;
  const uint32_t count = old == kNoTensor ? 0 : tables.tensors[old].piece_count;
  return count > kPlacePiecesMax ? 0 : count;
}

bool ReserveInPlace(Tables& tables, const Ask& ask) {
  JobState& job = *ask.session->job;
  const uint64_t vacated = VacatedBy(tables, ask).pages;
  if (vacated == 0 || vacated + job.pool.free_pages() < NeedOf(tables, ask).pages()) return false;
  const TensorIndex old = OldOf(tables, ask);
  const std::vector<base::PageRun> runs = PlanRuns(tables, ask, old);
  if (runs.empty()) return false;
  tables.work.Prepaid([&] { TakePlace(tables, ask); });  // All of the old tensor's RAM is needed now.
  const WaitItem& item = ask.items.front();
  const Tensor& tensor = tables.tensors[item.tensor.index];
  for (const base::PageRun run : runs) {
    TIER_CHECK(job.pool.TryTake(run), "{} pages of block {} are not free", run.pages, run.block);
  }
  std::span<const base::PageRun> left = runs;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    if (tables.pieces[id].ram) continue;
    const size_t count = RunsFor(left, PagesOfPiece(tensor, k));
    GiveRam(tables, id, left.first(count));
    left = left.subspan(count);
  }
  TIER_CHECK(left.empty(), "{} of {} runs are for no piece", left.size(), runs.size());
  tables.jobs.NeedMaintenance(job);
  return true;
}

void TakePlace(Tables& tables, const Ask& ask) {
  if (!AwaitsPlace(tables, ask)) return;
  const TensorIndex old = OldOf(tables, ask);
  if (old != kNoTensor) Detach(tables, old);
  NameTensor(tables, ask.items.front().tensor.index);
}

}  // namespace tier::tiering
