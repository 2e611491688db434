// See reserve.h.
#include "daemon/tiering/requests/reserve.h"

#include <algorithm>
#include <vector>

#include "daemon/tiering/memory/compaction.h"
#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/deferred_free.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

// All of an item in one piece of the pool, where it has that much: runs are what makes a tensor contiguous.
bool GiveWhole(Tables& tables, const Ask& ask, const WaitItem& item, MakeRoom* how, std::vector<PieceId>* given) {
  const Tensor& tensor = tables.tensors[item.tensor.index];
  uint32_t blocks = 0;
  uint32_t tail = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, tables.PieceOf(tensor, k))) continue;
    const uint32_t pages = PagesOfPiece(tensor, k);
    (pages == kPagesPerBlock ? blocks : tail) += pages == kPagesPerBlock ? 1 : pages;
  }
  if (blocks + tail == 0) return true;
  if (!TakeRuns(tables, tables.JobOf(tensor), blocks, tail)) return false;
  how->needed_pages -= uint64_t{blocks} * kPagesPerBlock + tail;
  std::span<const base::PageRun> runs = tables.scratch.runs;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, tables.PieceOf(tensor, k))) continue;
    const size_t count = RunsFor(runs, PagesOfPiece(tensor, k));
    GiveRam(tables, tables.tensors.PieceOf(tensor, k), runs.first(count));
    runs = runs.subspan(count);
    given->push_back(tables.tensors.PieceOf(tensor, k));
  }
  TIER_CHECK(runs.empty(), "{} of {} runs are for no piece", runs.size(), tables.scratch.runs.size());
  return true;
}

bool GiveOneByOne(Tables& tables, const Ask& ask, const WaitItem& item, MakeRoom* how, std::vector<PieceId>* given) {
  const Tensor& tensor = tables.tensors[item.tensor.index];
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, tables.PieceOf(tensor, k))) continue;
    std::vector<base::PageRun>& runs = tables.scratch.runs;
    runs.clear();
    if (!TakeRoom(tables, tables.JobOf(tensor), PagesOfPiece(tensor, k), *how, &runs)) return false;
    how->needed_pages -= PagesOfPiece(tensor, k);
    GiveRam(tables, tables.tensors.PieceOf(tensor, k), runs);
    given->push_back(tables.tensors.PieceOf(tensor, k));
  }
  return true;
}

// Room for every piece that lacks it, or for none.
bool GiveAll(Tables& tables, const Ask& ask, MakeRoom how) {
  std::vector<PieceId>& given = tables.scratch.given;
  given.clear();
  for (const WaitItem& item : ask.items) {
    if (GiveWhole(tables, ask, item, &how, &given) || GiveOneByOne(tables, ask, item, &how, &given)) continue;
    for (const PieceId id : given) TakeBackRam(tables, id);
    return false;
  }
  TIER_CHECK(NeedOf(tables, ask).pages() == 0, "{} pieces were given room, and some have none", given.size());
  for (const PieceId id : given) tables.waits.OnPieceChanged(id);  // Others lacked that room too.
  return true;
}

void StartReads(Tables& tables, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      const Piece& piece = tables.PieceOf(tensor, k);
      const PieceId id = tables.tensors.PieceOf(tensor, k);
      if (piece.activity == Activity::kReadingIn) PromoteRead(tables, id);
      const bool unread = piece.copies == Copies::kSsd && piece.activity == Activity::kNone && piece.has(kReserved);
      if (unread && NeedsRoom(ask, item, tensor, piece)) StartRead(tables, id, ReadPriority::kDemand);
    }
  }
}

// Not the request that is served, nor others of its job.
bool MayBeHeldBack(const Tables& tables, const JobState& job) {
  const Serving& serving = tables.serving;
  const base::TimePoint now = tables.turn.now();
  const bool held_back = serving.any()
                             ? serving.job() != job.id && (serving.HoldsBackOthers(now) || serving.HoldsBack(now))
                             : serving.HoldsBack(now);
  return held_back && tables.ledger.Surplus(job.entitlement) != 0;
}

}  // namespace

LeaseFit FitOfLeases(const Tables& tables, const Ask& ask, bool reserved) {
  const JobState& job = *ask.session->job;
  if (ask.op == proto::Op::kFree) return LeaseFit::kFits;
  uint64_t most = 0;  // Where not all of it is in RAM yet, and nothing is there twice.
  for (const WaitItem& item : ask.items) most += item.piece_count * kBlockSize;
  const uint64_t leased = tables.ledger.LeasedBy(job.entitlement);
  const uint64_t promised = AlignUp(tables.ledger.PromisedTo(job.entitlement), kPageSize);
  const bool to_hold_back = !reserved && leased + most > promised && MayBeHeldBack(tables, job);
  if (!to_hold_back && tables.ledger.MayLease(job.entitlement, most)) return LeaseFit::kFits;
  const uint64_t pages = NewlyHeldPages(tables, ask.items);
  if (pages == 0) return LeaseFit::kFits;
  const uint64_t ending = VacatedBy(tables, ask).held_pages * kPageSize;
  const uint64_t bytes = pages * kPageSize;
  if (to_hold_back && leased - std::min(leased, ending) + bytes > promised) return LeaseFit::kHeldBack;
  if (tables.ledger.MayLease(job.entitlement, bytes, ending)) return LeaseFit::kFits;
  return tables.ledger.MayLeaseAlone(job.entitlement, bytes, ending) ? LeaseFit::kOtherLeases : LeaseFit::kOwnLeases;
}

void AddPieces(Tables& tables, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    if (!tables.Alive(item.tensor) || tables.tensors[item.tensor.index].has(kVisible)) continue;
    AddPieces(tables, item.tensor.index, item.first_piece, item.piece_count);
  }
}

Reserved Reserve(Tables& tables, const Ask& ask, bool may_be_scattered) {
  JobState& job = *ask.session->job;
  Need need = NeedOf(tables, ask);
  if (need.pages() != 0) {
    if (need.pages() > job.pool.free_pages()) FreeForRoom(tables, job);
    need.unpacked =
        !may_be_scattered && job.pool.free_pages() >= need.pages() && WithinLimit(tables, job, need.pages());
    tables.jobs.NeedMaintenance(job);
    job.windows.SetNode(ask.session->numa_node);
    const Grown grown = Grow(tables, job, need);
    // What windows under way will hold is waited for, and those that follow them; beyond that, cold pieces make room.
    const bool may_evict = grown == Grown::kShort || !job.windows.makes_any();
    const bool moves_help = may_evict && may_be_scattered && MayCompact(tables, job, 0);
    const bool scattered = moves_help && MayCompact(tables, job, need.pages());
    if (may_evict && !scattered) job.moves.ClearFailures();
    const MakeRoom how{.may_evict = may_evict && !scattered ? MayEvict::kAll : MayEvict::kNothing,
                       .moves_help = moves_help,
                       .needed_pages = need.pages(),
                       .fresh_pages = need.fresh_pages};
    if (!GiveAll(tables, ask, how)) {
      // What was evicted may have made it so.
      if (moves_help && MayCompact(tables, job, need.pages())) return Reserved::kScattered;
      if (may_evict) GrowByOne(tables, job, need);
      return Reserved::kNone;
    }
  }
  StartReads(tables, ask);
  return Reserved::kAll;
}

}  // namespace tier::tiering
