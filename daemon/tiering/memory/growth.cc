// See growth.h.
#include "daemon/tiering/memory/growth.h"

#include <algorithm>

#include "daemon/tiering/memory/window_ownership.h"

namespace tier::tiering {
namespace {

constexpr size_t kTradeSearchMax = 256;  // Windows among which an empty one is sought.

void LetSlotsTakeBlocks(const Tables& tables, JobState& job, bool take) {
  job.windows.SetSlotsTakeBlocks(take, tables.windows.memory_gain());
}

// Memory beyond its own part goes back when others ask: its leases must leave room for what they are guaranteed, and
// SSD devices must have room for everything that has no copy there, beside the block through which they exchange.
bool MayBorrow(const Tables& tables, const JobState& job, uint64_t needed_pages, uint64_t fresh_pages) {
  if (!tables.ledger.MayLeaseAlone(job.entitlement, needed_pages * kPageSize)) return false;
  return tables.ports.extents.HasRoom((tables.jobs.dirty_pages() + fresh_pages) * kPageSize + kBlockSize);
}

// Whether the job may have one more window of this kind now, and the arena has room for it.
bool Fits(const Tables& tables, const JobState& job, WindowKind kind, const Need& need) {
  const memory::WindowSource& source = tables.ports.windows;
  return tables.ledger.MayGrow(job.entitlement, kind) &&
         MayHoldMore(tables, job, kind, need.pages(), need.fresh_pages) &&
         source.arena_bytes() + tables.windows.window_size(kind) <= source.arena_max_bytes();
}

// Free pages in blocks that hold slots.
uint64_t ScatteredPages(const JobState& job) {
  const uint64_t whole = job.pool.free_block_count() * kPagesPerBlock;
  TIER_CHECK(job.pool.free_pages() >= whole, "{} pages free, {} of them in whole blocks", job.pool.free_pages(), whole);
  return job.pool.free_pages() - whole;
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

bool StartForSlots(Tables& tables, JobState& job, const Need& need) {
  // Its memory is free at once where no session maps it.
  if (!Fits(tables, job, WindowKind::kSlot, need)) (void)GiveBlockWindowBack(tables, job, need);
  return TryStartForSlots(tables, job, need);
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

}  // namespace

bool SlotsTakeBlocks(const Tables& tables, const JobState& job) {
  return job.windows.slots_take_blocks(tables.windows.memory_gain());
}

bool MayHoldMore(const Tables& tables, const JobState& job, WindowKind kind, uint64_t needed_pages,
                 uint64_t fresh_pages) {
  const Growth growth = tables.ledger.GrowthOf(job.entitlement, kind);
  return growth == Growth::kOwn || (growth == Growth::kBorrowed && MayBorrow(tables, job, needed_pages, fresh_pages));
}

uint64_t BlocksComing(const Tables& tables, const JobState& job, WindowKind kind) {
  return job.windows.making(kind) * tables.windows.window_blocks(kind);
}

bool StartForBlocks(Tables& tables, JobState& job, const Need& need) {
  const bool whole = Fits(tables, job, WindowKind::kBlock, need);
  if (whole && !tables.ledger.Overshoots(job.entitlement, WindowKind::kBlock)) {
    return StartWindow(tables, job, WindowKind::kBlock);
  }
  if (Fits(tables, job, WindowKind::kSlot, need) && StartWindow(tables, job, WindowKind::kSlot)) return true;
  return whole && StartWindow(tables, job, WindowKind::kBlock);
}


bool TryStartForSlots(Tables& tables, JobState& job, const Need& need) {
  const bool started = Fits(tables, job, WindowKind::kSlot, need) && StartWindow(tables, job, WindowKind::kSlot);
  LetSlotsTakeBlocks(tables, job, !started);
  return started;
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
  const Need need{.slot_pages = slots_ahead, .fresh_pages = slots_ahead};
  if (Fits(tables, job, WindowKind::kSlot, need)) (void)StartWindow(tables, job, WindowKind::kSlot);
}

}  // namespace tier::tiering
