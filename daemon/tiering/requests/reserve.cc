// See reserve.h.
#include "daemon/tiering/requests/reserve.h"

#include <vector>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

// All of an item in one piece of the pool, where it has that much: runs are what makes a tensor contiguous.
bool GiveWhole(Core& core, const Ask& ask, const WaitItem& item, std::vector<PieceId>* given) {
  const Tensor& tensor = core.tensors[item.tensor.slot];
  uint32_t blocks = 0;
  uint32_t tail = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
    const uint32_t pages = PagesOfPiece(tensor, k);
    (pages == kPagesPerBlock ? blocks : tail) += pages == kPagesPerBlock ? 1 : pages;
  }
  if (blocks + tail == 0) return true;
  if (!TakeRuns(core, *tensor.job, blocks, tail)) return false;
  size_t next = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
    GiveRam(core, tensor.piece(k), core.runs[next++]);
    given->push_back(tensor.piece(k));
  }
  TIER_CHECK(next == core.runs.size(), "{} runs for {} pieces", core.runs.size(), next);
  return true;
}

bool GiveOneByOne(Core& core, const Ask& ask, const WaitItem& item, bool may_evict, std::vector<PieceId>* given) {
  const Tensor& tensor = core.tensors[item.tensor.slot];
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
    const base::PageRun run = TakeRun(core, *tensor.job, PagesOfPiece(tensor, k), may_evict);
    if (!run) return false;
    GiveRam(core, tensor.piece(k), run);
    given->push_back(tensor.piece(k));
  }
  return true;
}

// Room for every piece that lacks it, or for none.
bool GiveAll(Core& core, const Ask& ask, bool may_evict) {
  std::vector<PieceId>& given = core.given;
  given.clear();
  for (const WaitItem& item : ask.items) {
    if (GiveWhole(core, ask, item, &given) || GiveOneByOne(core, ask, item, may_evict, &given)) continue;
    for (const PieceId id : given) TakeBackRam(core, id);
    return false;
  }
  TIER_CHECK(NeedOf(core, ask).pages() == 0, "{} pieces were given room, and some have none", given.size());
  return true;
}

void StartReads(Core& core, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      const Piece& piece = core.PieceOf(tensor, k);
      const bool unread = piece.copies == Copies::kSsd && piece.activity == Activity::kNone && piece.has(kReserved);
      if (unread && NeedsRoom(ask, item, tensor, piece)) StartRead(core, tensor.piece(k), false);
    }
  }
}

}  // namespace

bool LeasesFit(const Core& core, const Ask& ask) {
  const JobState& job = *ask.session->job;
  uint64_t most = 0;  // Where not all of it is in RAM yet, and nothing is there twice.
  for (const WaitItem& item : ask.items) most += item.piece_count * kBlockSize;
  if (ask.op == proto::Op::kFree || core.ledger.MayLease(job.entitlement, most)) return true;
  const uint64_t pages = NewlyHeldPages(core, ask.items);
  const uint64_t ending = VacatedBy(core, ask).held_pages * kPageSize;
  return pages == 0 || core.ledger.MayLease(job.entitlement, pages * kPageSize, ending);
}

void AddPieces(Core& core, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    if (!core.Alive(item.tensor) || core.tensors[item.tensor.slot].has(kVisible)) continue;
    AddPieces(core, item.tensor.slot, item.first_piece, item.piece_count);
  }
}

bool Reserve(Core& core, const Ask& ask) {
  JobState& job = *ask.session->job;
  const Need need = NeedOf(core, ask);
  if (need.pages() != 0) {
    core.jobs.NeedMaintenance(job);
    const bool covered = Grow(core, job, need);
    // What windows under way will hold is waited for; beyond that, cold pieces make room.
    const bool may_evict = !covered || !job.makes_windows();
    if (!GiveAll(core, ask, may_evict)) {
      if (may_evict) GrowByOne(core, job, need);
      return false;
    }
  }
  StartReads(core, ask);
  return true;
}

}  // namespace tier::tiering
