// See room.h.
#include "daemon/tiering/memory/room.h"

#include <algorithm>

#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kBlockSearchMax = 64;

// The coldest clean piece that may go; of the coldest few one that frees a whole block, where that is what is needed.
PieceId ColdestClean(Core& core, JobState& job, bool whole_block) {
  PieceId coldest = kNoPiece;
  uint32_t seen = 0;
  for (PieceId at = job.policy->Coldest(EvictionOrder::kClean); at != kNoPiece && seen < kBlockSearchMax;) {
    const PieceId warmer = job.policy->Warmer(at);
    const Piece& piece = core.pieces[at];
    if (piece.read_leases != 0 || piece.pins != 0) {
      Delist(core, at);  // Comes back when its last lease or pin ends.
    } else if (!whole_block || piece.ram.whole_block()) {
      return at;
    } else {
      if (coldest == kNoPiece) coldest = at;
      ++seen;
    }
    at = warmer;
  }
  return coldest;
}

bool EvictOne(Core& core, JobState& job, bool whole_block) {
  const PieceId id = ColdestClean(core, job, whole_block);
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
  if (run || pages == kPagesPerBlock || job.pool.free_block_count() == 0) return run;
  return job.pool.TryAllocateRun(kPagesPerBlock, near);  // Only whole-block windows are left: a slot takes a block.
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

// Whether it may come to hold one more window, now or later, when it needs that many bytes more under leases.
bool MayHoldMore(const Core& core, const JobState& job, uint64_t needed_bytes) {
  const Growth growth = core.ledger.GrowthOf(job.entitlement);
  return growth == Growth::kOwn || (growth == Growth::kBorrowed && MayBorrow(core, job, needed_bytes));
}

bool TryStartWindow(Core& core, JobState& job, uint64_t needed_bytes) {
  return core.ledger.MayGrow(job.entitlement) && MayHoldMore(core, job, needed_bytes) && StartWindow(core, job);
}

// Starts windows until so many blocks are free or coming. Returns the blocks that are still missing.
uint64_t StartWindows(Core& core, JobState& job, uint64_t blocks, uint64_t needed_bytes) {
  const uint64_t window_blocks = core.windows.blocks_per_window();
  uint64_t coming = job.pool.free_block_count() + job.windows_making * window_blocks;
  for (; coming < blocks; coming += window_blocks) {
    if (!TryStartWindow(core, job, needed_bytes)) return blocks - coming;
  }
  return 0;
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

void WriteBehind(Core& core, JobState& job, uint64_t reachable) {
  if (job.has_pending_frees()) return;  // The coldest may be what is about to be freed: not worth a write.
  const uint64_t start = Threshold(reachable, core.options.write_behind_start);
  const uint64_t dirty = job.dirty_pages;
  uint64_t wanted = dirty > start ? dirty - start : 0;
  wanted = std::max(wanted, std::min(job.shortage_pages, dirty));
  if (wanted != 0) WriteColdest(core, job, wanted, Which::kAll);
  // Of a tensor larger than fits the first bytes need not wait for the last. Others stay: they may be gone soon.
  // (Manifests keep extents of no tensor: there may be more of them than of what the tensors will take.)
  const uint64_t unsaved = job.logical_pages - std::min(job.logical_pages, job.ssd_pages);
  if (unsaved > start) WriteColdest(core, job, std::min(unsaved - start, dirty), Which::kUnfinished);
}

void EvictAhead(Core& core, JobState& job) {
  const uint64_t start = Threshold(EntitledPages(core, job), core.options.evict_start);
  while (job.used_pages() > start && EvictOne(core, job, false)) {
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
  Piece& piece = core.pieces[id];
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
  for (uint32_t looked = 0; !job.prefetches.empty() && job.shortage_pages == 0 && job.prefetching_pages < budget;) {
    if (looked++ == kFetchWorkMax) {
      core.jobs.NeedMaintenance(job);
      core.made_progress = true;
      return;
    }
    PrefetchItem& item = job.prefetches.front();
    if (!core.Alive(item.tensor) || item.next_piece == item.end_piece) {
      job.prefetches.pop_front();
      continue;
    }
    if (!FetchNext(core, job, item)) return;
    ++item.next_piece;
  }
}

void GrowAhead(Core& core, JobState& job) {
  const uint64_t used = job.used_pages();
  if (used == 0 || job.windows_making != 0) return;
  // Not when the arena is getting full: what is made ahead here is missing elsewhere.
  if (core.ports.windows.arena_bytes() > core.ports.windows.arena_max_bytes() / 4 * 3) return;
  const uint64_t ahead = std::min(used / kAheadDivisor, kAheadBytesMax / kPageSize);
  if (job.pool.free_pages() >= ahead) return;
  const uint64_t blocks = ahead / kPagesPerBlock + 1;
  StartWindows(core, job, blocks, blocks * kBlockSize);
}

}  // namespace

bool Grow(Core& core, JobState& job, const Need& need) {
  const uint64_t free_blocks = job.pool.free_block_count();
  const uint64_t scattered = job.pool.free_pages() - free_blocks * kPagesPerBlock;
  const uint64_t slots = need.slot_pages - std::min(need.slot_pages, scattered);
  const uint64_t blocks = need.blocks + (slots + kPagesPerBlock - 1) / kPagesPerBlock;
  const uint64_t missing = StartWindows(core, job, blocks, need.pages() * kPageSize);
  if (missing == 0) {
    core.ledger.DropClaim(job.entitlement);
    return true;
  }
  core.ledger.Claim(job.entitlement, missing * kBlockSize, core.now);
  return false;
}

bool GrowByOne(Core& core, JobState& job, const Need& need) {
  if (job.windows_making != 0 || TryStartWindow(core, job, need.pages() * kPageSize)) return true;
  core.ledger.Claim(job.entitlement, core.windows.window_size(), core.now);
  return false;
}

base::PageRun TakeRun(Core& core, JobState& job, uint32_t pages, bool may_evict) {
  for (;;) {
    const base::PageRun run = TakeFree(job, pages, 0);
    if (run || !may_evict) return run;
    if (!EvictOne(core, job, pages == kPagesPerBlock)) return {};
  }
}

bool TakeRuns(Core& core, JobState& job, uint32_t blocks, uint32_t tail_pages) {
  core.runs.clear();
  if (!WithinLimit(job, uint64_t{blocks} * kPagesPerBlock + tail_pages)) return false;
  return job.pool.TryAllocate(blocks, tail_pages, &core.runs);
}

bool RoomMayCome(const Core& core, const JobState& job) {
  if (job.has_pending_frees()) return true;
  if (job.windows_making != 0 || job.writing_pages != 0 || job.reading_pages != 0) return true;
  if (job.policy->count(EvictionOrder::kClean) != 0) return true;
  if (job.policy->count(EvictionOrder::kDirty) != 0 && job.write_backoff < kWriteFailuresBeforeRefusal) return true;
  // The arena is full, or the host short: others may give some back.
  return MayHoldMore(core, job, job.shortage_pages * kPageSize);
}

bool OnlyOwnLeases(const SessionState& session) {
  return session.lease_count != 0 && session.lease_count == session.job->counters.lease_count;
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
