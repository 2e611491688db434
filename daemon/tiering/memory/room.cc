// See room.h.
#include "daemon/tiering/memory/room.h"

#include <algorithm>

#include "daemon/tiering/memory/eviction.h"
#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kEvictedInVain = 2;  // As often as what is lacking, and no room for it: then a block at once.

// The coldest dirty piece that no request has pinned and whose tensor is not detached.
PieceId ColdestDirty(Tables& tables, JobState& job) {
  for (;;) {
    const PieceId id = job.policy->Coldest(EvictionOrder::kDirty);
    if (id == kNoPiece) return id;
    const Piece& piece = tables.pieces[id];
    TIER_CHECK(piece.ram && piece.copies == Copies::kRam, "piece {} is listed as dirty", Value(id));
    const bool gone = tables.tensors[piece.tensor].has(kDetached);  // Not worth a write.
    if (piece.pins == 0 && !gone) return id;
    TakeOutOfOrder(tables, id);
  }
}

// Whether the job may begin a write of so many bytes ahead of need. Where several wait for the budget of writes each
// has its turn: what a tight budget brings would else all go to the job that is looked at first.
bool MayWriteAhead(Tables& tables, const JobState& job, uint64_t bytes) {
  if (!tables.write_budget.limits()) {
    tables.jobs.LeaveBudget(job);  // It may have been taken away in the middle of the job's turn.
    return true;
  }
  const JobState* const first = tables.jobs.first_for_budget();
  const bool turn = first == nullptr || (first == &job && tables.jobs.TurnAllows(job, bytes));
  if (turn && tables.write_budget.TakesAhead(tables.turn.now())) return true;
  tables.jobs.WantBudget(job);
  return false;
}

// What an attempt to write ahead of need leaves. Of several attempts the one that stands last here counts.
enum class AheadWrites : uint8_t {
  kNoneLeft,  // Those that are wanted have begun, or cannot begin.
  kLater,     // Others are wanted, and the job is looked at again by itself.
  kHeldBack,  // Others wait for the budget of writes, or for the job's turn.
};

AheadWrites AfterNoWrite(const Tables& tables, const JobState& job) {
  return tables.jobs.RetriesByItself(job, tables.turn.now()) ? AheadWrites::kLater : AheadWrites::kNoneLeft;
}

enum class Which { kAll, kUnfinished };

// `kUnfinished`: while the coldest belongs to a tensor that is still being created.
AheadWrites WriteColdest(Tables& tables, JobState& job, uint64_t pages, WriteFor purpose, Which which = Which::kAll) {
  const bool ahead = purpose == WriteFor::kBehind || purpose == WriteFor::kAhead;
  while (job.transfers.writing_pages() < pages) {
    if (!CanStartWrite(tables, job)) return AfterNoWrite(tables, job);
    const PieceId id = ColdestDirty(tables, job);
    if (id == kNoPiece) break;
    const Piece& piece = tables.pieces[id];
    const Tensor& tensor = tables.tensors[piece.tensor];
    if (which == Which::kUnfinished && tensor.has(kVisible)) break;
    const uint64_t bytes = PagesFor(tensor.piece_length(piece.number)) * kPageSize;
    if (ahead && !MayWriteAhead(tables, job, bytes)) return AheadWrites::kHeldBack;
    if (!StartWrite(tables, id, purpose)) return AfterNoWrite(tables, job);
    if (ahead) tables.jobs.SpendTurn(job, bytes);
    tables.turn.NoteProgress();
  }
  return AheadWrites::kNoneLeft;
}

bool EvictOne(Tables& tables, JobState& job, const RoomWanted& wanted, MayEvict may_evict) {
  EndOldPrefetches(tables, job);
  if (EvictFirst(tables, job, EvictionOrder::kClean, wanted)) return true;
  if (may_evict != MayEvict::kAll || job.policy->count(EvictionOrder::kKept) == 0) return false;
  // It would be read again: a write costs no more than that.
  const bool idle = job.transfers.writing_pages() == 0 && !job.frees.any();
  if (idle) (void)WriteColdest(tables, job, kPagesPerBlock, WriteFor::kRequest);
  if (job.transfers.writing_pages() != 0) return false;
  return EvictFirst(tables, job, EvictionOrder::kKept, wanted);
}

bool TakeFree(const Tables& tables, JobState& job, uint32_t pages, std::vector<base::PageRun>* runs) {
  if (!WithinLimit(tables, job, pages)) return false;
  const bool slot = pages != kPagesPerBlock;
  if (slot && job.pool.TryAllocateRuns(pages, kRamRunsMax, runs)) return true;
  if (slot && !SlotsTakeBlocks(tables, job)) return false;
  const base::PageRun block = job.pool.TryAllocateRun(kPagesPerBlock);
  if (block) runs->push_back(block);
  return static_cast<bool>(block);
}

uint64_t Threshold(uint64_t pages, double part) { return static_cast<uint64_t>(static_cast<double>(pages) * part); }

// Pages that it can hold as things stand: what it has, and what the arena has left.
uint64_t ReachablePages(const Tables& tables, const JobState& job) {
  const uint64_t arena_max = tables.ports.windows.arena_max_bytes();
  const uint64_t arena = tables.ports.windows.arena_bytes();
  const uint64_t reachable = tables.ledger.HeldBy(job.entitlement) + (arena_max > arena ? arena_max - arena : 0);
  return std::min(tables.ledger.AllowedTo(job.entitlement), reachable) / kPageSize;
}

// Pages up to which it need not evict ahead of need. The configured arena counts though the host is short: evicted
// memory would go to no job.
uint64_t EntitledPages(const Tables& tables, const JobState& job) {
  const uint64_t limit = tables.ledger.arena_bytes();
  const uint64_t arena = tables.ports.windows.arena_bytes() - tables.ledger.closing_bytes();
  const uint64_t reachable = tables.ledger.HeldBy(job.entitlement) + (limit > arena ? limit - arena : 0);
  return std::min(tables.ledger.AllowedTo(job.entitlement), reachable) / kPageSize;
}

// Others hold some of what it is promised.
bool LacksPromised(const Tables& tables, const JobState& job) { return tables.ledger.Deficit(job.entitlement) != 0; }

// Of writes that make room for the request that waits first.
WriteFor PurposeOf(Tables& tables, const JobState& job) {
  const Waiter* const first = tables.waits.Find(tables.waits.shortage_waiter(job));
  return first != nullptr && first->op == proto::Op::kCreate ? WriteFor::kRequest : WriteFor::kRead;
}

// Dirty pages from which on the coldest are written ahead of need. What does not fit must be written sooner or later:
// earlier by as much, then, so that clean pages can make room for what is read next, before others that a use awaits.
uint64_t WriteBehindStart(const JobState& job, uint64_t reachable, uint64_t start) {
  const uint64_t beyond = job.pages.logical() - std::min(job.pages.logical(), reachable);
  return start - std::min(start / 2, beyond);
}

AheadWrites WriteBehind(Tables& tables, JobState& job, uint64_t reachable) {
  // The coldest may be what is about to be freed: not worth a write.
  if (job.frees.any()) return AheadWrites::kNoneLeft;
  const uint64_t start = Threshold(reachable, tables.options.write_behind_start);
  const uint64_t dirty = job.pages.dirty();
  const uint64_t wanted = dirty - std::min(dirty, WriteBehindStart(job, reachable, start));
  // What waits for room of windows that are coming, or of moves in RAM, needs no write.
  const uint64_t coming =
      (BlocksComing(job, WindowKind::kBlock) + BlocksComing(job, WindowKind::kSlot)) * kPagesPerBlock +
      job.moves.coming_pages();
  const uint64_t lacking = job.moves.wanted() ? 0 : tables.waits.shortage_pages(job);
  const uint64_t shortage = lacking - std::min(lacking, coming);
  const bool ahead = tables.ports.extents.HasRoom(2 * kBlockSize);  // The last block is not for that.
  auto writes = AheadWrites::kNoneLeft;
  if (ahead && wanted != 0) writes = WriteColdest(tables, job, wanted, WriteFor::kBehind);
  if (shortage != 0) (void)WriteColdest(tables, job, std::min(shortage, dirty), PurposeOf(tables, job));
  // Of a tensor larger than fits the first bytes need not wait for the last. Others stay: they may be gone soon.
  // (Manifests keep extents of no tensor: there may be more of them than of what the tensors will take.)
  const uint64_t unsaved = job.pages.logical() - std::min(job.pages.logical(), job.pages.ssd());
  if (!ahead || unsaved <= start) return writes;
  const uint64_t first = std::min(unsaved - start, dirty);
  return std::max(writes, WriteColdest(tables, job, first, WriteFor::kBehind, Which::kUnfinished));
}

// The turn has no work left for the job: it is looked at again in the next one.
void MaintainNextTurn(Tables& tables, JobState& job) {
  tables.jobs.NeedMaintenance(job);
  tables.turn.NoteProgress();
}

void EvictAhead(Tables& tables, JobState& job) {
  if (LacksPromised(tables, job)) return;  // With room made ahead it would never ask for that.
  const uint64_t start = Threshold(EntitledPages(tables, job), tables.options.evict_start);
  if (job.used_pages() > start && Borrow(tables, job, (job.used_pages() - start) * kPageSize)) return;
  while (job.used_pages() > start) {
    if (!tables.work.TrySpend()) return MaintainNextTurn(tables, job);
    if (!EvictOne(tables, job, {}, MayEvict::kUsed)) return;
  }
}

// Bytes in memory that it borrowed must be able to leave it. Where SSD devices have no room for them any more, the
// windows go back while clean pieces can still be dropped for that.
void NoteUnbacked(Tables& tables, const JobState& job) {
  const uint64_t held = tables.ledger.HeldBy(job.entitlement);
  const uint64_t own = tables.ledger.OwnBytes(job.entitlement);
  const bool backed = held <= own || tables.ports.extents.HasRoom(tables.jobs.dirty_pages() * kPageSize + kBlockSize);
  tables.ledger.SetUnbacked(job.entitlement, backed ? 0 : held - own);
}

bool FetchNext(Tables& tables, JobState& job, const PrefetchQueue::Item& item) {
  const Tensor& tensor = tables.tensors[item.tensor.index];
  const PieceId id = tables.tensors.PieceOf(tensor, item.next_piece);
  const Piece& piece = tables.PieceOf(tensor, item.next_piece);
  const bool wanted = piece.copies == Copies::kSsd && piece.activity == Activity::kNone && !piece.ram &&
                      !piece.has(kCorrupt) && tables.devices.IsReadable(piece.ssd_device);
  if (!wanted) return true;
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(item.next_piece)));
  std::vector<base::PageRun>& runs = tables.scratch.runs;
  runs.clear();
  if (!TakeRoom(tables, job, pages, {.may_evict = MayEvict::kUsed}, &runs)) return false;
  GiveRam(tables, id, runs);
  StartRead(tables, id, ReadPriority::kPrefetch);
  tables.turn.NoteProgress();
  return true;
}

// Nothing that was used can go. A window may come; else dirty pieces must be written, which takes its time: it is begun
// while what was fetched before is used.
AheadWrites MakeRoomToFetch(Tables& tables, JobState& job, uint64_t pages) {
  if (job.windows.makes_any() || job.frees.any() || StartForBlocks(tables, job, {.blocks = 1}))
    return AheadWrites::kNoneLeft;
  return WriteColdest(tables, job, pages, WriteFor::kAhead);
}

AheadWrites Fetch(Tables& tables, JobState& job, uint64_t reachable) {
  uint64_t budget = tables.options.prefetch_bytes_max / kPageSize;
  if (budget == 0) budget = std::max<uint64_t>(reachable / 4, kPagesPerBlock);
  budget += tables.devices.stuck_ahead_pages();  // Those need not end for others to begin.
  while (!job.prefetches.empty() && tables.waits.shortage_pages(job) == 0 &&
         job.transfers.reading_pages(ReadPriority::kPrefetch) < budget) {
    if (!tables.work.TrySpend()) {
      MaintainNextTurn(tables, job);
      return AheadWrites::kLater;
    }
    const PrefetchQueue::Item& item = job.prefetches.oldest();
    if (!tables.Alive(item.tensor) || item.next_piece == item.end_piece) {
      job.prefetches.EndOldest();
      continue;
    }
    if (!FetchNext(tables, job, item)) {
      return MakeRoomToFetch(tables, job, budget - job.transfers.reading_pages(ReadPriority::kPrefetch));
    }
    job.prefetches.EndOldestPiece();
  }
  return AheadWrites::kNoneLeft;
}

// Its operations that have begun, or are about to, make room.
bool RoomUnderWay(const JobState& job) {
  return job.frees.any() || job.windows.makes_any() || job.moves.any() || job.moves.wanted() ||
         job.windows.emptying_bytes() != 0 || job.transfers.writing_pages() != 0 || job.transfers.reading_pages() != 0;
}

}  // namespace

bool WithinLimit(const Tables& tables, const JobState& job, uint64_t pages) {
  const uint64_t limit = tables.ledger.LimitOf(job.entitlement);
  return limit == kUnlimited || job.used_pages() + pages <= std::max(limit / kPageSize, uint64_t{1});
}

bool TakeRoom(Tables& tables, JobState& job, uint32_t pages, const MakeRoom& how, std::vector<base::PageRun>* runs) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "a piece of {} pages", pages);
  const uint64_t& evicted = job.record.counters.evicted_bytes;
  for (const uint64_t before = evicted;;) {
    if (TakeFree(tables, job, pages, runs)) return true;
    if (how.may_evict == MayEvict::kNothing) return false;
    const bool enough = job.pool.free_pages() >= how.needed_pages && WithinLimit(tables, job, how.needed_pages);
    if (how.moves_help && enough) return false;
    const bool in_vain = evicted - before >= kEvictedInVain * uint64_t{pages} * kPageSize;
    const RoomWanted wanted{.pages = pages, .together = in_vain, .one_by_one = how.may_evict == MayEvict::kAll};
    tables.work.Charge(1);
    if (EvictOne(tables, job, wanted, how.may_evict)) continue;
    if (pages == kPagesPerBlock || job.windows.making_bytes(WindowKind::kSlot) != 0) return false;
    const bool took_blocks = SlotsTakeBlocks(tables, job);
    const Need need{.slot_pages = pages, .fresh_pages = how.fresh_pages};
    const bool started = TryStartForSlots(tables, job, need);
    if (took_blocks || started || !SlotsTakeBlocks(tables, job)) return false;
  }
}

bool TakeRuns(Tables& tables, JobState& job, uint32_t blocks, uint32_t tail_pages) {
  tables.scratch.runs.clear();
  if (!WithinLimit(tables, job, uint64_t{blocks} * kPagesPerBlock + tail_pages)) return false;
  return job.pool.TryAllocate(blocks, tail_pages, &tables.scratch.runs, kRamRunsMax);
}

bool RoomComesWithoutWrite(const Tables& tables, const JobState& job) {
  if (RoomUnderWay(job)) return true;
  // What others owe it comes only if something of theirs is on its way.
  const memory::WindowSource& source = tables.ports.windows;
  const bool comes = tables.ledger.returning_bytes() != 0 || tables.ledger.closing_bytes() != 0 ||
                     tables.hand_over.emptying() || source.arena_bytes() < source.arena_max_bytes();
  return comes && tables.ledger.ClaimedBy(job.entitlement) != 0;
}

bool OwnRoomComes(const JobState& job) {
  if (RoomUnderWay(job)) return true;
  return job.policy->count(EvictionOrder::kDirty) != 0 && job.failures.in_a_row() < kWriteFailuresBeforeRefusal;
}

bool RoomMayCome(const Tables& tables, const JobState& job) {
  if (OwnRoomComes(job)) return true;
  if (job.policy->count(EvictionOrder::kClean) + job.policy->count(EvictionOrder::kKept) != 0) return true;
  // The arena is full, or the host short: others may give some back.
  return MayHoldMore(tables, job, tables.windows.grain(), tables.waits.shortage_pages(job), 0);
}

bool OnlyOwnLeases(const SessionState& session) {
  const bool only =
      session.record.lease_count != 0 && session.record.lease_count == session.job->record.counters.lease_count;
  return only && session.requests.unfinished() == 0;
}

bool OwnLeasesHoldRoom(const Tables& tables, const SessionState& session) {
  return OnlyOwnLeases(session) && !RoomMayCome(tables, *session.job);
}

void Maintain(Tables& tables, JobState& job) {
  const uint64_t reachable = ReachablePages(tables, job);
  AheadWrites writes = WriteBehind(tables, job, reachable);
  EvictAhead(tables, job);
  writes = std::max(writes, Fetch(tables, job, reachable));
  if (writes == AheadWrites::kNoneLeft) tables.jobs.LeaveBudget(job);
  if (writes == AheadWrites::kLater) tables.jobs.KeepBudgetPlace(job);
  GrowAhead(tables, job);
  NoteUnbacked(tables, job);
}

void CallForBudget(Tables& tables) {
  (void)tables.write_budget.TakeDue(tables.turn.now());
  if (!tables.jobs.first_for_budget_waits() || tables.write_budget.NextLook()) return;
  if (tables.write_budget.TakesAhead(tables.turn.now())) tables.jobs.NeedMaintenance(*tables.jobs.first_for_budget());
}

std::optional<base::TimePoint> NextCallForBudget(const Tables& tables) {
  if (const auto at = tables.write_budget.NextLook()) return at;
  if (!tables.jobs.first_for_budget_waits()) return std::nullopt;
  return tables.turn.now();
}

}  // namespace tier::tiering
