// See room.h.
#include "daemon/tiering/memory/room.h"

#include <algorithm>

#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kBlockSearchMax = 64;
constexpr uint32_t kEndPrefetchCost = 4;  // Its place among the clean pieces is sought.
constexpr size_t kTradeSearchMax = 256;   // Windows among which an empty one is sought.

bool SlotsTakeBlocks(const Tables& tables, const JobState& job) {
  return job.windows.slots_take_blocks(tables.windows.memory_gain());
}

void LetSlotsTakeBlocks(const Tables& tables, JobState& job, bool take) {
  job.windows.SetSlotsTakeBlocks(take, tables.windows.memory_gain());
}

// Whether evicting the piece makes room for a run of so many pages. 0: any room is welcome.
bool MakesRoom(const Tables& tables, const JobState& job, const Piece& piece, uint32_t pages) {
  if (pages == 0) return true;
  if (pages == kPagesPerBlock) return piece.ram.whole_block();
  return SlotsTakeBlocks(tables, job) || tables.windows.HoldsSlots(piece.ram);
}

// What is pinned, or goes with its tensor, leaves the order when it is met: once, so a search may do it however little
// of the turn is left.
void TakeOutOfOrder(Tables& tables, PieceId id) {
  tables.work.Charge(1);
  Delist(tables, id);  // A pinned one comes back when its last pin ends.
}

// The first piece of an order that may go, from its cold end (prefetched ones: from the hot end, since what was
// announced first is used first); of the first few one that makes room for a run of so many pages. Where none of them
// does, the first for a whole block: its slots may be a block together. A slot would gain nothing by that.
PieceId FirstToGo(Tables& tables, JobState& job, EvictionOrder order, uint32_t pages) {
  const EvictionPolicy& policy = *job.policy;
  const bool from_hot = order == EvictionOrder::kKept;
  PieceId first = kNoPiece;
  uint32_t seen = 0;
  for (PieceId at = from_hot ? policy.Hottest(order) : policy.Coldest(order);
       at != kNoPiece && seen < kBlockSearchMax;) {
    const PieceId next = from_hot ? policy.Colder(at) : policy.Warmer(at);
    const Piece& piece = tables.pieces[at];
    if (piece.pins != 0) {
      TakeOutOfOrder(tables, at);
    } else if (StaysForNow(tables, piece)) {
      tables.jobs.WantPort(job);  // It is looked at again when that is over.
      ++seen;
    } else if (pages != 0 && tables.windows[tables.windows.WindowOf(piece.ram)].emptying) {
      ++seen;  // Its room goes to another job.
    } else if (MakesRoom(tables, job, piece, pages)) {
      return at;
    } else {
      if (first == kNoPiece) first = at;
      ++seen;
    }
    at = next;
  }
  return pages == kPagesPerBlock ? first : kNoPiece;
}

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

enum class Which { kAll, kUnfinished };

// `kUnfinished`: while the coldest belongs to a tensor that is still being created.
void WriteColdest(Tables& tables, JobState& job, uint64_t pages, WriteFor purpose, Which which = Which::kAll) {
  while (job.transfers.writing_pages() < pages && CanStartWrite(tables, job)) {
    const PieceId id = ColdestDirty(tables, job);
    if (id == kNoPiece) return;
    if (which == Which::kUnfinished && tables.tensors[tables.pieces[id].tensor].has(kVisible)) return;
    if (!StartWrite(tables, id, purpose)) return;
    tables.turn.NoteProgress();
  }
}

// Prefetched pieces that were not used in time are not kept any longer.
void EndOldPrefetches(Tables& tables, JobState& job) {
  job.prefetch_age.EpochAt(tables.turn.now());
  for (bool first = true;; first = false) {
    const PieceId oldest = job.policy->Coldest(EvictionOrder::kKept);
    if (oldest == kNoPiece || !job.prefetch_age.IsOver(tables.pieces[oldest].prefetched_at)) return;
    if (first && job.policy->count(EvictionOrder::kClean) == 0) {  // Needed now, however little of the turn is left.
      tables.work.Charge(kEndPrefetchCost);
    } else if (!tables.work.TrySpend(kEndPrefetchCost)) {
      return;
    }
    EndPrefetch(tables, oldest);
  }
}

// False: none of that order can go.
bool EvictFirst(Tables& tables, JobState& job, EvictionOrder order, uint32_t pages) {
  for (;;) {
    const PieceId id = FirstToGo(tables, job, order, pages);
    if (id == kNoPiece) return false;
    tables.turn.NoteProgress();
    if (Evict(tables, id)) return true;
    if (!tables.work.TrySpend()) return false;
  }
}

bool EvictOne(Tables& tables, JobState& job, uint32_t pages, MayEvict may_evict) {
  EndOldPrefetches(tables, job);
  if (EvictFirst(tables, job, EvictionOrder::kClean, pages)) return true;
  if (may_evict != MayEvict::kAll || job.policy->count(EvictionOrder::kKept) == 0) return false;
  // It would be read again: a write costs no more than that.
  const bool idle = job.transfers.writing_pages() == 0 && !job.frees.any();
  if (idle) WriteColdest(tables, job, kPagesPerBlock, WriteFor::kRequest);
  if (job.transfers.writing_pages() != 0) return false;
  return EvictFirst(tables, job, EvictionOrder::kKept, pages);
}

base::PageRun TakeFree(const Tables& tables, JobState& job, uint32_t pages, uint32_t near) {
  if (!WithinLimit(job, pages)) return {};
  const base::PageRun run = job.pool.TryAllocateRun(pages, near);
  if (run || pages == kPagesPerBlock || !SlotsTakeBlocks(tables, job)) return run;
  return job.pool.TryAllocateRun(kPagesPerBlock, near);
}

uint64_t Threshold(uint64_t pages, double part) { return static_cast<uint64_t>(static_cast<double>(pages) * part); }

// Memory beyond its own part goes back when others ask: its leases must leave room for what they are guaranteed, and
// SSD devices must have room for everything that has no copy there, beside the block through which they exchange.
bool MayBorrow(const Tables& tables, const JobState& job, uint64_t needed_pages, uint64_t fresh_pages) {
  if (!tables.ledger.MayLeaseAlone(job.entitlement, needed_pages * kPageSize)) return false;
  return tables.ports.extents.HasRoom((tables.jobs.dirty_pages() + fresh_pages) * kPageSize + kBlockSize);
}

// Whether it may come to hold one more window of this kind, now or later, when it needs that many pages more under
// leases, `fresh_pages` of them for content of which SSD has no copy.
bool MayHoldMore(const Tables& tables, const JobState& job, WindowKind kind, uint64_t needed_pages,
                 uint64_t fresh_pages) {
  const Growth growth = tables.ledger.GrowthOf(job.entitlement, kind);
  return growth == Growth::kOwn || (growth == Growth::kBorrowed && MayBorrow(tables, job, needed_pages, fresh_pages));
}

// Whether the job may have one more window of this kind now, and the arena has room for it.
bool Fits(const Tables& tables, const JobState& job, WindowKind kind, const Need& need) {
  const memory::WindowSource& source = tables.ports.windows;
  return tables.ledger.MayGrow(job.entitlement, kind) &&
         MayHoldMore(tables, job, kind, need.pages(), need.fresh_pages) &&
         source.arena_bytes() + tables.windows.window_size(kind) <= source.arena_max_bytes();
}

bool TryStart(Tables& tables, JobState& job, WindowKind kind, const Need& need) {
  return Fits(tables, job, kind, need) && StartWindow(tables, job, kind);
}

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
bool LacksPromised(const Tables& tables, const JobState& job) {
  return tables.ledger.HeldBy(job.entitlement) < tables.ledger.PromisedTo(job.entitlement);
}

// Of windows that are being made for it.
uint64_t BlocksComing(const Tables& tables, const JobState& job, WindowKind kind) {
  return job.windows.making(kind) * tables.windows.window_blocks(kind);
}

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

void WriteBehind(Tables& tables, JobState& job, uint64_t reachable) {
  if (job.frees.any()) return;  // The coldest may be what is about to be freed: not worth a write.
  const uint64_t start = Threshold(reachable, tables.options.write_behind_start);
  const uint64_t dirty = job.pages.dirty();
  const uint64_t wanted = dirty - std::min(dirty, WriteBehindStart(job, reachable, start));
  // What waits for room of windows that are coming, or of moves in RAM, needs no write.
  const uint64_t coming =
      (BlocksComing(tables, job, WindowKind::kBlock) + BlocksComing(tables, job, WindowKind::kSlot)) * kPagesPerBlock +
      job.moves.coming_pages();
  const uint64_t lacking = job.moves.wanted() ? 0 : tables.waits.shortage_pages(job);
  const uint64_t shortage = lacking - std::min(lacking, coming);
  const bool ahead = tables.ports.extents.HasRoom(2 * kBlockSize);  // The last block is not for that.
  if (ahead && wanted != 0) WriteColdest(tables, job, wanted, WriteFor::kAhead);
  if (shortage != 0) WriteColdest(tables, job, std::min(shortage, dirty), PurposeOf(tables, job));
  // Of a tensor larger than fits the first bytes need not wait for the last. Others stay: they may be gone soon.
  // (Manifests keep extents of no tensor: there may be more of them than of what the tensors will take.)
  const uint64_t unsaved = job.pages.logical() - std::min(job.pages.logical(), job.pages.ssd());
  if (ahead && unsaved > start) {
    WriteColdest(tables, job, std::min(unsaved - start, dirty), WriteFor::kAhead, Which::kUnfinished);
  }
}

// The turn has no work left for the job: it is looked at again in the next one.
void MaintainNextTurn(Tables& tables, JobState& job) {
  tables.jobs.NeedMaintenance(job);
  tables.turn.NoteProgress();
}

void EvictAhead(Tables& tables, JobState& job) {
  if (LacksPromised(tables, job)) return;  // With room made ahead it would never ask for that.
  const uint64_t start = Threshold(EntitledPages(tables, job), tables.options.evict_start);
  while (job.used_pages() > start) {
    if (!tables.work.TrySpend()) return MaintainNextTurn(tables, job);
    if (!EvictOne(tables, job, 0, MayEvict::kUsed)) return;
  }
}

// Bytes in memory that it borrowed must be able to leave it. Where SSD devices have no room for them any more, the
// windows go back while clean pieces can still be dropped for that.
void NoteUnbacked(Tables& tables, const JobState& job) {
  const uint64_t held = tables.ledger.HeldBy(job.entitlement);
  const uint64_t firm = tables.ledger.FirmBytes(job.entitlement);
  const bool backed = held <= firm || tables.ports.extents.HasRoom(tables.jobs.dirty_pages() * kPageSize + kBlockSize);
  tables.ledger.SetUnbacked(job.entitlement, backed ? 0 : held - firm);
}

// Free pages in blocks that hold slots.
uint64_t ScatteredPages(const JobState& job) {
  const uint64_t whole = job.pool.free_block_count() * kPagesPerBlock;
  TIER_CHECK(job.pool.free_pages() >= whole, "{} pages free, {} of them in whole blocks", job.pool.free_pages(), whole);
  return job.pool.free_pages() - whole;
}

// Whole blocks may lie in slot windows too: that is how what is left of the arena, or of what the job is promised, is
// used up, where it is less than a block window.
bool StartForBlocks(Tables& tables, JobState& job, const Need& need) {
  const bool whole = Fits(tables, job, WindowKind::kBlock, need);
  if (whole && !tables.ledger.Overshoots(job.entitlement, WindowKind::kBlock)) {
    return StartWindow(tables, job, WindowKind::kBlock);
  }
  return TryStart(tables, job, WindowKind::kSlot, need) || (whole && StartWindow(tables, job, WindowKind::kBlock));
}

// The job could have a slot window once it has given a block window back.
bool MayTrade(const Tables& tables, const JobState& job) {
  const Ledger& ledger = tables.ledger;
  if (ledger.host_debt() != 0 || (ledger.serving() && !ledger.Serves(job.entitlement))) return false;
  const uint64_t left = ledger.HeldBy(job.entitlement) - tables.windows.window_size(WindowKind::kBlock);
  return !ledger.anybody_owed() || left < ledger.PromisedTo(job.entitlement);
}

// Gives an empty window back that can hold no slots, so that a slot window can come for it. Not while one is on its way
// back, or where the need could not be met by the blocks that are left: it may be that no slot window comes. False:
// there is none.
bool GiveBlockWindowBack(Tables& tables, JobState& job, const Need& need) {
  const uint64_t whole_only = job.pool.free_block_count() - job.pool.free_slot_block_count();
  const uint64_t window_blocks = tables.windows.window_blocks(WindowKind::kBlock);
  if (job.windows.returning() != 0 || tables.ledger.closing_bytes() != 0 || whole_only < window_blocks ||
      !MayTrade(tables, job))
    return false;
  const uint64_t needed = need.blocks + (need.slot_pages + kPagesPerBlock - 1) / kPagesPerBlock;
  if (job.pool.free_block_count() < window_blocks + needed) return false;
  const size_t end = job.windows.ready().size() - std::min<size_t>(job.windows.ready().size(), kTradeSearchMax);
  for (size_t i = job.windows.ready().size(); i != end; --i) {
    const WindowIndex window = job.windows.ready()[i - 1];
    const bool holds_slots = tables.windows[window].shape.page_size == kPageSize;
    const bool emptying = tables.windows[window].emptying;
    if (holds_slots || emptying || !job.pool.RegionEmpty(tables.windows.FirstBlock(window))) continue;
    ReturnWindow(tables, window);
    return true;
  }
  return false;
}

bool StartForSlots(Tables& tables, JobState& job, const Need& need) {
  bool fits = Fits(tables, job, WindowKind::kSlot, need);
  // Its memory is free at once where no session maps it.
  if (!fits && GiveBlockWindowBack(tables, job, need)) fits = Fits(tables, job, WindowKind::kSlot, need);
  const bool started = fits && StartWindow(tables, job, WindowKind::kSlot);
  LetSlotsTakeBlocks(tables, job, !started);
  return started;
}

bool FetchNext(Tables& tables, JobState& job, const PrefetchQueue::Item& item) {
  const Tensor& tensor = tables.tensors[item.tensor.index];
  const PieceId id = tables.tensors.PieceOf(tensor, item.next_piece);
  const Piece& piece = tables.PieceOf(tensor, item.next_piece);
  const bool wanted = piece.copies == Copies::kSsd && piece.activity == Activity::kNone && !piece.ram &&
                      !piece.has(kCorrupt) && tables.devices.IsReadable(piece.ssd_device);
  if (!wanted) return true;
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(item.next_piece)));
  const base::PageRun run = TakeRun(tables, job, pages, {.may_evict = MayEvict::kUsed});
  if (!run) return false;
  GiveRam(tables, id, run);
  StartRead(tables, id, ReadPriority::kPrefetch);
  tables.turn.NoteProgress();
  return true;
}

// Nothing that was used can go. A window may come; else dirty pieces must be written, which takes its time: it is begun
// while what was fetched before is used.
void MakeRoomToFetch(Tables& tables, JobState& job, uint64_t pages) {
  if (job.windows.makes_any() || job.frees.any() || StartForBlocks(tables, job, {.blocks = 1})) return;
  WriteColdest(tables, job, pages, WriteFor::kAhead);
}

void Fetch(Tables& tables, JobState& job, uint64_t reachable) {
  uint64_t budget = tables.options.prefetch_bytes_max / kPageSize;
  if (budget == 0) budget = std::max<uint64_t>(reachable / 4, kPagesPerBlock);
  budget += tables.devices.stuck_ahead_pages();  // Those need not end for others to begin.
  while (!job.prefetches.empty() && tables.waits.shortage_pages(job) == 0 &&
         job.transfers.reading_pages(ReadPriority::kPrefetch) < budget) {
    if (!tables.work.TrySpend()) return MaintainNextTurn(tables, job);
    const PrefetchQueue::Item& item = job.prefetches.oldest();
    if (!tables.Alive(item.tensor) || item.next_piece == item.end_piece) {
      job.prefetches.EndOldest();
      continue;
    }
    if (!FetchNext(tables, job, item)) {
      MakeRoomToFetch(tables, job, budget - job.transfers.reading_pages(ReadPriority::kPrefetch));
      return;
    }
    job.prefetches.EndOldestPiece();
  }
}

// Which windows a need still asks for, with all that is free or coming.
struct Lack {
  bool slots = false;   // A slot window.
  uint64_t blocks = 0;  // One of any kind, for so many blocks.
};

Lack LackOf(const Tables& tables, const JobState& job, const Need& need) {
  const uint64_t slots = need.slot_pages - std::min(need.slot_pages, ScatteredPages(job));
  const uint64_t slot_blocks = (slots + kPagesPerBlock - 1) / kPagesPerBlock;
  const uint64_t in_block_windows = BlocksComing(tables, job, WindowKind::kBlock);
  const uint64_t in_slot_windows = BlocksComing(tables, job, WindowKind::kSlot);
  const uint64_t all = job.pool.free_block_count() + in_block_windows + in_slot_windows;
  const uint64_t blocks = need.blocks + slot_blocks;
  const uint64_t lacking = blocks - std::min(blocks, all);
  uint64_t for_slots = job.pool.free_slot_block_count() + in_slot_windows;
  if (!tables.ports.windows.block_windows_take_slots()) return {.slots = slot_blocks > for_slots, .blocks = lacking};
  // Block windows that come can hold slots as well: a slot window is for what they leave.
  for_slots += in_block_windows;
  return {.slots = need.blocks <= all && (lacking != 0 || slot_blocks > for_slots), .blocks = lacking};
}

// What a need still lacks when no more windows are to be had.
struct Shortfall {
  bool slots = false;   // No slot window came: slots take whole blocks.
  uint64_t blocks = 0;  // There are so many too few, for both.
};

Shortfall StartWindows(Tables& tables, JobState& job, const Need& need) {
  Shortfall left;
  for (;;) {
    const Lack lack = LackOf(tables, job, need);
    if (lack.slots && !left.slots) {
      left.slots = !StartForSlots(tables, job, need);
    } else if (lack.blocks == 0 || !StartForBlocks(tables, job, need)) {
      left.blocks = lack.blocks;
      return left;
    }
  }
}

void GrowAhead(Tables& tables, JobState& job) {
  const uint64_t used = job.used_pages();
  if (used == 0 || job.windows.makes_any()) return;
  // Not when the arena is getting full: what is made ahead here is missing elsewhere.
  if (tables.ports.windows.arena_bytes() > tables.ports.windows.arena_max_bytes() / 4 * 3) return;
  const auto ahead_of = [](uint64_t pages) { return std::min(pages / kAheadDivisor, kAheadBytesMax / kPageSize); };
  const uint64_t scattered = ScatteredPages(job);
  const uint64_t in_slots = job.pool.slot_block_count() * kPagesPerBlock - scattered;
  const uint64_t blocks_ahead = ahead_of(used - in_slots);
  if (job.pool.free_block_count() * kPagesPerBlock < blocks_ahead) {
    StartWindows(tables, job, {.blocks = blocks_ahead / kPagesPerBlock + 1, .fresh_pages = blocks_ahead});
  }
  // Not for a job that uses less than eight slot windows: most of one more would be held for nothing.
  const uint64_t slots_ahead = ahead_of(in_slots);
  const uint64_t for_slots = scattered + job.pool.free_slot_block_count() * kPagesPerBlock;
  const bool worth_it = slots_ahead * kPageSize >= tables.windows.window_size(WindowKind::kSlot);
  if (!worth_it || for_slots >= slots_ahead) return;
  (void)TryStart(tables, job, WindowKind::kSlot, {.slot_pages = slots_ahead, .fresh_pages = slots_ahead});
}

}  // namespace

bool WithinLimit(const JobState& job, uint64_t pages) {
  const uint64_t limit = job.record.limit_bytes;
  return limit == 0 || job.used_pages() + pages <= std::max(limit / kPageSize, uint64_t{1});
}

bool Grow(Tables& tables, JobState& job, const Need& need) {
  const Shortfall left = StartWindows(tables, job, need);
  if (left.blocks == 0) {
    tables.ledger.DropClaim(job.entitlement);
  } else {
    tables.ledger.Claim(job.entitlement, left.blocks * kBlockSize, tables.turn.now());
  }
  return left.blocks == 0 && !left.slots;
}

void GrowByOne(Tables& tables, JobState& job, const Need& need) {
  if (job.windows.makes_any()) return;
  const bool for_blocks = need.slot_pages == 0 || need.blocks > job.pool.free_block_count();
  if (for_blocks ? StartForBlocks(tables, job, need) : StartForSlots(tables, job, need)) return;
  tables.ledger.Claim(job.entitlement, tables.windows.window_size(WindowKind::kSlot), tables.turn.now());
}

base::PageRun TakeRun(Tables& tables, JobState& job, uint32_t pages, const MakeRoom& how) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "a run of {} pages", pages);
  for (;;) {
    const base::PageRun run = TakeFree(tables, job, pages, 0);
    if (run || how.may_evict == MayEvict::kNothing) return run;
    if (EvictOne(tables, job, pages, how.may_evict)) continue;
    if (pages == kPagesPerBlock || job.windows.making(WindowKind::kSlot) != 0) return {};
    const bool took_blocks = SlotsTakeBlocks(tables, job);
    const Need need{.slot_pages = pages, .fresh_pages = how.fresh_pages};
    const bool started = TryStart(tables, job, WindowKind::kSlot, need);
    LetSlotsTakeBlocks(tables, job, !started);
    if (took_blocks || started) return {};
  }
}

bool TakeRuns(Tables& tables, JobState& job, uint32_t blocks, uint32_t tail_pages) {
  tables.scratch.runs.clear();
  if (!WithinLimit(job, uint64_t{blocks} * kPagesPerBlock + tail_pages)) return false;
  return job.pool.TryAllocate(blocks, tail_pages, &tables.scratch.runs);
}

bool OwnRoomComes(const JobState& job) {
  if (job.frees.any() || job.windows.makes_any()) return true;
  if (job.moves.any() || job.moves.wanted() || job.windows.emptying() != 0) return true;
  if (job.transfers.writing_pages() != 0 || job.transfers.reading_pages() != 0) return true;
  return job.policy->count(EvictionOrder::kDirty) != 0 && job.failures.in_a_row() < kWriteFailuresBeforeRefusal;
}

bool RoomMayCome(const Tables& tables, const JobState& job) {
  if (OwnRoomComes(job)) return true;
  if (job.policy->count(EvictionOrder::kClean) + job.policy->count(EvictionOrder::kKept) != 0) return true;
  // The arena is full, or the host short: others may give some back.
  return MayHoldMore(tables, job, WindowKind::kSlot, tables.waits.shortage_pages(job), 0);
}

bool OnlyOwnLeases(const SessionState& session) {
  const bool only =
      session.record.lease_count != 0 && session.record.lease_count == session.job->record.counters.lease_count;
  return only && session.requests.releasing() == 0;
}

bool OwnLeasesHoldRoom(const Tables& tables, const SessionState& session) {
  return OnlyOwnLeases(session) && !RoomMayCome(tables, *session.job);
}

void Maintain(Tables& tables, JobState& job) {
  const uint64_t reachable = ReachablePages(tables, job);
  WriteBehind(tables, job, reachable);
  EvictAhead(tables, job);
  Fetch(tables, job, reachable);
  GrowAhead(tables, job);
  NoteUnbacked(tables, job);
}

}  // namespace tier::tiering
