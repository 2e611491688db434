// See room.h.
#include "daemon/tiering/memory/room.h"

#include <algorithm>

#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kBlockSearchMax = 64;
constexpr size_t kTradeSearchMax = 256;  // Windows among which an empty one is sought.

// Whether evicting the piece makes room for a run of so many pages. 0: any room is welcome.
bool MakesRoom(const Core& core, const JobState& job, const Piece& piece, uint32_t pages) {
  if (pages == 0) return true;
  if (pages == kPagesPerBlock) return piece.ram.whole_block();
  return job.slots_take_blocks || core.windows.HoldsSlots(piece.ram);
}

// The coldest clean piece that may go; of the coldest few one that makes room for a run of so many pages. Where none of
// them does, the coldest for a whole block: its slots may be a block together. A slot would gain nothing by that.
PieceId ColdestClean(Core& core, JobState& job, uint32_t pages) {
  PieceId coldest = kNoPiece;
  uint32_t seen = 0;
  for (PieceId at = job.policy->Coldest(EvictionOrder::kClean); at != kNoPiece && seen < kBlockSearchMax;) {
    const PieceId warmer = job.policy->Warmer(at);
    const Piece& piece = core.pieces[at];
    if (piece.read_leases != 0 || piece.pins != 0) {
      Delist(core, at);  // Comes back when its last lease or pin ends.
    } else if (MakesRoom(core, job, piece, pages)) {
      return at;
    } else {
      if (coldest == kNoPiece) coldest = at;
      ++seen;
    }
    at = warmer;
  }
  return pages == kPagesPerBlock ? coldest : kNoPiece;
}

bool EvictOne(Core& core, JobState& job, uint32_t pages) {
  const PieceId id = ColdestClean(core, job, pages);
  if (id == kNoPiece) return false;
  Evict(core, id);
  core.made_progress = true;
  return true;
}

bool WithinLimit(const JobState& job, uint64_t pages) {
  const uint64_t limit = job.options.limit_bytes;
  return limit == 0 || job.used_pages() + pages <= std::max(limit / kPageSize, uint64_t{1});
}

base::PageRun TakeFree(JobState& job, uint32_t pages, uint32_t near) {
  if (!WithinLimit(job, pages)) return {};
  const base::PageRun run = job.pool.TryAllocateRun(pages, near);
  if (run || pages == kPagesPerBlock || !job.slots_take_blocks) return run;
  return job.pool.TryAllocateRun(kPagesPerBlock, near);
}

// The coldest dirty piece that nobody holds.
PieceId ColdestDirty(Core& core, JobState& job) {
  for (;;) {
    const PieceId id = job.policy->Coldest(EvictionOrder::kDirty);
    if (id == kNoPiece) return id;
    const Piece& piece = core.pieces[id];
    TIER_CHECK(piece.ram && piece.copies == Copies::kRam, "piece {} is listed as dirty", Value(id));
    const bool gone = core.tensors[piece.tensor].has(kDetached);  // Not worth a write.
    if (piece.read_leases == 0 && piece.pins == 0 && !gone) return id;
    Delist(core, id);
  }
}

enum class Which { kAll, kUnfinished };

// `kUnfinished`: while the coldest belongs to a tensor that is still being created.
void WriteColdest(Core& core, JobState& job, uint64_t pages, Which which) {
  while (job.writing_pages < pages && CanStartWrite(core, job)) {
    const PieceId id = ColdestDirty(core, job);
    if (id == kNoPiece) return;
    if (which == Which::kUnfinished && core.tensors[core.pieces[id].tensor].has(kVisible)) return;
    if (!StartWrite(core, id)) return;
    core.made_progress = true;
  }
}

uint64_t Threshold(uint64_t pages, double part) { return static_cast<uint64_t>(static_cast<double>(pages) * part); }

// Memory beyond its own part goes back when others ask: its leases must leave room for what they are guaranteed, and
// SSD devices must have room for everything dirty.
bool MayBorrow(const Core& core, const JobState& job, uint64_t needed_bytes) {
  if (!core.ledger.MayLease(job.entitlement, needed_bytes)) return false;
  return core.ports.extents.HasRoom(core.dirty_pages * kPageSize + needed_bytes);
}

// Whether it may come to hold one more window of this kind, now or later, when it needs that many bytes more under
// leases.
bool MayHoldMore(const Core& core, const JobState& job, WindowKind kind, uint64_t needed_bytes) {
  const Growth growth = core.ledger.GrowthOf(job.entitlement, kind);
  return growth == Growth::kOwn || (growth == Growth::kBorrowed && MayBorrow(core, job, needed_bytes));
}

// Whether the job may have one more window of this kind now, and the arena has room for it.
bool Fits(const Core& core, const JobState& job, WindowKind kind, const Need& need) {
  const memory::WindowSource& source = core.ports.windows;
  return core.ledger.MayGrow(job.entitlement, kind) && MayHoldMore(core, job, kind, need.pages() * kPageSize) &&
         source.arena_bytes() + core.windows.window_size(kind) <= source.arena_max_bytes();
}

bool TryStart(Core& core, JobState& job, WindowKind kind, const Need& need) {
  return Fits(core, job, kind, need) && StartWindow(core, job, kind);
}

// Pages that it can hold as things stand: what it has, and what the arena has left.
uint64_t ReachablePages(const Core& core, const JobState& job) {
  const uint64_t arena_max = core.ports.windows.arena_max_bytes();
  const uint64_t arena = core.ports.windows.arena_bytes();
  const uint64_t reachable = core.ledger.HeldBy(job.entitlement) + (arena_max > arena ? arena_max - arena : 0);
  return std::min(core.ledger.AllowedTo(job.entitlement), reachable) / kPageSize;
}

// Pages up to which it need not evict ahead of need. What it is promised counts though others hold it still: it is to
// ask for that first. The configured arena counts though the host is short: what is evicted would go to nobody.
uint64_t EntitledPages(const Core& core, const JobState& job) {
  const uint64_t limit = core.ledger.arena_bytes();
  const uint64_t arena = core.ports.windows.arena_bytes();
  const uint64_t reachable = core.ledger.HeldBy(job.entitlement) + (limit > arena ? limit - arena : 0);
  const uint64_t entitled = std::max(reachable, core.ledger.PromisedTo(job.entitlement));
  return std::min(core.ledger.AllowedTo(job.entitlement), entitled) / kPageSize;
}

// Of windows that are being made for it.
uint64_t BlocksComing(const Core& core, const JobState& job, WindowKind kind) {
  return job.making(kind) * core.windows.window_blocks(kind);
}

void WriteBehind(Core& core, JobState& job, uint64_t reachable) {
  if (job.has_pending_frees()) return;  // The coldest may be what is about to be freed: not worth a write.
  const uint64_t start = Threshold(reachable, core.options.write_behind_start);
  const uint64_t dirty = job.dirty_pages;
  uint64_t wanted = dirty > start ? dirty - start : 0;
  // What waits for room of windows that are coming needs no write.
  const uint64_t coming =
      (BlocksComing(core, job, WindowKind::kBlock) + BlocksComing(core, job, WindowKind::kSlot)) * kPagesPerBlock;
  const uint64_t shortage = job.shortage_pages - std::min(job.shortage_pages, coming);
  wanted = std::max(wanted, std::min(shortage, dirty));
  if (wanted != 0) WriteColdest(core, job, wanted, Which::kAll);
  // Of a tensor larger than fits the first bytes need not wait for the last. Others stay: they may be gone soon.
  // (Manifests keep extents of no tensor: there may be more of them than of what the tensors will take.)
  const uint64_t unsaved = job.logical_pages - std::min(job.logical_pages, job.ssd_pages);
  if (unsaved > start) WriteColdest(core, job, std::min(unsaved - start, dirty), Which::kUnfinished);
}

// The turn has no work left for the job: it is looked at again in the next one.
void MaintainNextTurn(Core& core, JobState& job) {
  core.jobs.NeedMaintenance(job);
  core.made_progress = true;
}

void EvictAhead(Core& core, JobState& job) {
  const uint64_t start = Threshold(EntitledPages(core, job), core.options.evict_start);
  while (job.used_pages() > start) {
    if (!core.work.TrySpend()) return MaintainNextTurn(core, job);
    if (!EvictOne(core, job, 0)) return;
  }
}

// Bytes in memory that it borrowed must be able to leave it. Where SSD devices have no room for them any more, the
// windows go back while clean pieces can still be dropped for that.
void NoteUnbacked(Core& core, const JobState& job) {
  const uint64_t held = core.ledger.HeldBy(job.entitlement);
  const uint64_t firm = core.ledger.FirmBytes(job.entitlement);
  const bool backed = held <= firm || core.ports.extents.HasRoom(core.dirty_pages * kPageSize);
  core.ledger.SetUnbacked(job.entitlement, backed ? 0 : held - firm);
}

bool FetchNext(Core& core, JobState& job, PrefetchItem& item) {
  const Tensor& tensor = core.tensors[item.tensor.slot];
  const PieceId id = tensor.piece(item.next_piece);
  const Piece& piece = core.PieceOf(tensor, item.next_piece);
  const bool wanted =
      piece.copies == Copies::kSsd && piece.activity == Activity::kNone && !piece.ram && !piece.has(kCorrupt);
  if (!wanted) return true;
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(item.next_piece)));
  const base::PageRun run = TakeRun(core, job, pages, true);
  if (!run) return false;
  GiveRam(core, id, run);
  StartRead(core, id, true);
  core.made_progress = true;
  return true;
}

void Fetch(Core& core, JobState& job, uint64_t reachable) {
  uint64_t budget = core.options.prefetch_bytes_max / kPageSize;
  if (budget == 0) budget = std::max<uint64_t>(reachable / 4, kPagesPerBlock);
  while (!job.prefetches.empty() && job.shortage_pages == 0 && job.prefetching_pages < budget) {
    if (!core.work.TrySpend()) return MaintainNextTurn(core, job);
    PrefetchItem& item = job.prefetches.front();
    if (!core.Alive(item.tensor) || item.next_piece == item.end_piece) {
      job.prefetches.pop_front();
      continue;
    }
    if (!FetchNext(core, job, item)) return;
    ++item.next_piece;
  }
}

// Free pages in blocks that hold slots.
uint64_t ScatteredPages(const JobState& job) {
  const uint64_t whole = job.pool.free_block_count() * kPagesPerBlock;
  TIER_CHECK(job.pool.free_pages() >= whole, "{} pages free, {} of them in whole blocks", job.pool.free_pages(), whole);
  return job.pool.free_pages() - whole;
}

// Whole blocks may lie in slot windows too: that is how what is left of the arena, or of what the job is promised, is
// used up, where it is less than a block window.
bool StartForBlocks(Core& core, JobState& job, const Need& need) {
  const bool whole = Fits(core, job, WindowKind::kBlock, need);
  if (whole && !core.ledger.Overshoots(job.entitlement, WindowKind::kBlock)) {
    return StartWindow(core, job, WindowKind::kBlock);
  }
  return TryStart(core, job, WindowKind::kSlot, need) || (whole && StartWindow(core, job, WindowKind::kBlock));
}

// The job could have a slot window once it has given a block window back.
bool MayTrade(const Core& core, const JobState& job) {
  const Ledger& ledger = core.ledger;
  if (ledger.host_debt() != 0 || (ledger.serving() && !ledger.Serves(job.entitlement))) return false;
  const uint64_t left = ledger.HeldBy(job.entitlement) - core.windows.window_size(WindowKind::kBlock);
  return !ledger.anybody_owed() || left < ledger.PromisedTo(job.entitlement);
}

// Gives an empty window back that can hold no slots, so that a slot window can come for it. Not while one is on its way
// back, or where the need could not be met by the blocks that are left: it may be that no slot window comes. False:
// there is none.
bool GiveBlockWindowBack(Core& core, JobState& job, const Need& need) {
  const uint64_t whole_only = job.pool.free_block_count() - job.pool.free_slot_block_count();
  const uint64_t window_blocks = core.windows.window_blocks(WindowKind::kBlock);
  if (job.windows_returning != 0 || whole_only < window_blocks || !MayTrade(core, job)) return false;
  const uint64_t needed = need.blocks + (need.slot_pages + kPagesPerBlock - 1) / kPagesPerBlock;
  if (job.pool.free_block_count() < window_blocks + needed) return false;
  const size_t end = job.windows.size() - std::min<size_t>(job.windows.size(), kTradeSearchMax);
  for (size_t i = job.windows.size(); i != end; --i) {
    const WindowIndex window = job.windows[i - 1];
    const bool holds_slots = core.windows[window].shape.page_size == kPageSize;
    if (holds_slots || !job.pool.RegionEmpty(core.windows.FirstBlock(window))) continue;
    ReturnWindow(core, window);
    return true;
  }
  return false;
}

bool StartForSlots(Core& core, JobState& job, const Need& need) {
  bool fits = Fits(core, job, WindowKind::kSlot, need);
  // Its memory is free at once where no session maps it.
  if (!fits && GiveBlockWindowBack(core, job, need)) fits = Fits(core, job, WindowKind::kSlot, need);
  job.slots_take_blocks = !fits || !StartWindow(core, job, WindowKind::kSlot);
  return !job.slots_take_blocks;
}

// Which windows a need still asks for, with all that is free or coming.
struct Lack {
  bool slots = false;   // A slot window.
  uint64_t blocks = 0;  // One of any kind, for so many blocks.
};

Lack LackOf(const Core& core, const JobState& job, const Need& need) {
  const uint64_t slots = need.slot_pages - std::min(need.slot_pages, ScatteredPages(job));
  const uint64_t slot_blocks = (slots + kPagesPerBlock - 1) / kPagesPerBlock;
  const uint64_t in_block_windows = BlocksComing(core, job, WindowKind::kBlock);
  const uint64_t in_slot_windows = BlocksComing(core, job, WindowKind::kSlot);
  const uint64_t all = job.pool.free_block_count() + in_block_windows + in_slot_windows;
  const uint64_t blocks = need.blocks + slot_blocks;
  const uint64_t lacking = blocks - std::min(blocks, all);
  uint64_t for_slots = job.pool.free_slot_block_count() + in_slot_windows;
  if (!core.ports.windows.block_windows_take_slots()) return {.slots = slot_blocks > for_slots, .blocks = lacking};
  // Block windows that come can hold slots as well: a slot window is for what they leave.
  for_slots += in_block_windows;
  return {.slots = need.blocks <= all && (lacking != 0 || slot_blocks > for_slots), .blocks = lacking};
}

// What a need still lacks when no more windows are to be had.
struct Shortfall {
  bool slots = false;   // No slot window came: slots take whole blocks.
  uint64_t blocks = 0;  // There are so many too few, for both.
};

Shortfall StartWindows(Core& core, JobState& job, const Need& need) {
  Shortfall left;
  for (;;) {
    const Lack lack = LackOf(core, job, need);
    if (lack.slots && !left.slots) {
      left.slots = !StartForSlots(core, job, need);
    } else if (lack.blocks == 0 || !StartForBlocks(core, job, need)) {
      left.blocks = lack.blocks;
      return left;
    }
  }
}

void GrowAhead(Core& core, JobState& job) {
  const uint64_t used = job.used_pages();
  if (used == 0 || job.makes_windows()) return;
  // Not when the arena is getting full: what is made ahead here is missing elsewhere.
  if (core.ports.windows.arena_bytes() > core.ports.windows.arena_max_bytes() / 4 * 3) return;
  const auto ahead_of = [](uint64_t pages) { return std::min(pages / kAheadDivisor, kAheadBytesMax / kPageSize); };
  const uint64_t scattered = ScatteredPages(job);
  const uint64_t in_slots = job.pool.slot_block_count() * kPagesPerBlock - scattered;
  const uint64_t blocks_ahead = ahead_of(used - in_slots);
  if (job.pool.free_block_count() * kPagesPerBlock < blocks_ahead) {
    StartWindows(core, job, {.blocks = blocks_ahead / kPagesPerBlock + 1});
  }
  // Not for a job that uses less than eight slot windows: most of one more would be held for nothing.
  const uint64_t slots_ahead = ahead_of(in_slots);
  const uint64_t for_slots = scattered + job.pool.free_slot_block_count() * kPagesPerBlock;
  const bool worth_it = slots_ahead * kPageSize >= core.windows.window_size(WindowKind::kSlot);
  if (worth_it && for_slots < slots_ahead) (void)TryStart(core, job, WindowKind::kSlot, {.slot_pages = slots_ahead});
}

}  // namespace

bool Grow(Core& core, JobState& job, const Need& need) {
  const Shortfall left = StartWindows(core, job, need);
  if (left.blocks == 0) {
    core.ledger.DropClaim(job.entitlement);
  } else {
    core.ledger.Claim(job.entitlement, left.blocks * kBlockSize, core.now);
  }
  return left.blocks == 0 && !left.slots;
}

void GrowByOne(Core& core, JobState& job, const Need& need) {
  if (job.makes_windows()) return;
  const bool for_blocks = need.slot_pages == 0 || need.blocks > job.pool.free_block_count();
  if (for_blocks ? StartForBlocks(core, job, need) : StartForSlots(core, job, need)) return;
  core.ledger.Claim(job.entitlement, core.windows.window_size(WindowKind::kSlot), core.now);
}

base::PageRun TakeRun(Core& core, JobState& job, uint32_t pages, bool may_evict) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "a run of {} pages", pages);
  for (;;) {
    const base::PageRun run = TakeFree(job, pages, 0);
    if (run || !may_evict) return run;
    if (EvictOne(core, job, pages)) continue;
    if (pages == kPagesPerBlock || job.making(WindowKind::kSlot) != 0) return {};
    const bool took_blocks = job.slots_take_blocks;
    job.slots_take_blocks = !TryStart(core, job, WindowKind::kSlot, {.slot_pages = pages});
    if (took_blocks || !job.slots_take_blocks) return {};
  }
}

bool TakeRuns(Core& core, JobState& job, uint32_t blocks, uint32_t tail_pages) {
  core.runs.clear();
  if (!WithinLimit(job, uint64_t{blocks} * kPagesPerBlock + tail_pages)) return false;
  return job.pool.TryAllocate(blocks, tail_pages, &core.runs);
}

bool RoomMayCome(const Core& core, const JobState& job) {
  if (job.has_pending_frees()) return true;
  if (job.makes_windows() || job.writing_pages != 0 || job.reading_pages != 0) return true;
  if (job.policy->count(EvictionOrder::kClean) != 0) return true;
  if (job.policy->count(EvictionOrder::kDirty) != 0 && job.write_backoff < kWriteFailuresBeforeRefusal) return true;
  // The arena is full, or the host short: others may give some back.
  return MayHoldMore(core, job, WindowKind::kSlot, job.shortage_pages * kPageSize);
}

bool OnlyOwnLeases(const SessionState& session) {
  const bool only = session.lease_count != 0 && session.lease_count == session.job->counters.lease_count;
  return only && session.releasing == 0;
}

bool OwnLeasesHoldRoom(const Core& core, const SessionState& session) {
  return OnlyOwnLeases(session) && !RoomMayCome(core, *session.job);
}

void Maintain(Core& core, JobState& job) {
  const uint64_t reachable = ReachablePages(core, job);
  WriteBehind(core, job, reachable);
  EvictAhead(core, job);
  Fetch(core, job, reachable);
  GrowAhead(core, job);
  NoteUnbacked(core, job);
}

}  // namespace tier::tiering
