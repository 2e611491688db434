// See growth.h.
#include "daemon/tiering/memory/growth.h"

#include <algorithm>
#include <bit>
#include <vector>

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

// Whether the job may have one more window of so many bytes now, and the arena has room for it.
bool Fits(const Tables& tables, const JobState& job, uint64_t window_bytes, const Need& need) {
  const memory::WindowSource& source = tables.ports.windows;
  const uint64_t counted = tables.ledger.HeldBy(job.entitlement) + tables.ledger.KeptBy(job.entitlement);
  const bool unpacked = need.unpacked && counted + window_bytes <= tables.ledger.OwnBytes(job.entitlement);
  return tables.ledger.MayGrow(job.entitlement, window_bytes) &&
         (unpacked || MayHoldMore(tables, job, window_bytes, need.pages(), need.fresh_pages)) &&
         source.arena_bytes() + window_bytes <= source.arena_max_bytes();
}

uint64_t WishedSize(const Tables& tables, const JobState& job, WindowKind kind, const Need& need) {
  const memory::WindowSizes sizes = tables.windows.sizes(kind);
  const uint64_t needed = kind == WindowKind::kBlock ? need.blocks * kBlockSize : need.slot_pages * kPageSize;
  return std::clamp(WishesFor(tables, job, kind, needed).next, sizes.least, sizes.most);
}

enum class Overshoot : uint8_t { kNo, kAllowed };

// The bytes of the next window. 0: none is to be had.
uint64_t FittingSize(const Tables& tables, const JobState& job, WindowKind kind, const Need& need,
                     Overshoot overshoot) {
  const uint64_t least = tables.windows.sizes(kind).least;
  for (uint64_t size = WishedSize(tables, job, kind, need); size >= least; size /= 2) {
    const bool too_much = overshoot == Overshoot::kNo && tables.ledger.Overshoots(job.entitlement, size);
    if (!too_much && Fits(tables, job, size, need)) return size;
  }
  return 0;
}

bool TryStart(Tables& tables, JobState& job, WindowKind kind, const Need& need, Overshoot overshoot) {
  const uint64_t size = FittingSize(tables, job, kind, need, overshoot);
  return size != 0 && StartWindow(tables, job, kind, size).has_value();
}

// One that does not overshoot, if there is.
bool TryStartSlotWindow(Tables& tables, JobState& job, const Need& need) {
  return TryStart(tables, job, WindowKind::kSlot, need, Overshoot::kNo) ||
         TryStart(tables, job, WindowKind::kSlot, need, Overshoot::kAllowed);
}

// Free pages in blocks that hold slots.
uint64_t ScatteredPages(const JobState& job) {
  const uint64_t whole = job.pool.free_block_count() * kPagesPerBlock;
  TIER_CHECK(job.pool.free_pages() >= whole, "{} pages free, {} of them in whole blocks", job.pool.free_pages(), whole);
  return job.pool.free_pages() - whole;
}

// The job could have a slot window once it has given back a window of so many bytes.
bool MayTrade(const Tables& tables, const JobState& job, uint64_t window_bytes) {
  const Ledger& ledger = tables.ledger;
  if (ledger.host_debt() != 0 || (ledger.serving() && !ledger.Serves(job.entitlement))) return false;
  return !ledger.anybody_owed() || ledger.HeldBy(job.entitlement) - window_bytes < ledger.PromisedTo(job.entitlement);
}

// Gives an empty window back that can hold no slots, so that a slot window can come for it. Not while one is on its way
// back, or where the need could not be met by the blocks that are left: it may be that no slot window comes. False:
// there is none.
bool GiveBlockWindowBack(Tables& tables, JobState& job, const Need& need) {
  if (job.windows.returning() != 0 || tables.ledger.closing_bytes() != 0) return false;
  const uint64_t whole_only = job.pool.free_block_count() - job.pool.free_slot_block_count();
  const uint64_t needed = need.blocks + (need.slot_pages + kPagesPerBlock - 1) / kPagesPerBlock;
  const uint64_t given_most =
      std::min(whole_only, job.pool.free_block_count() - std::min(job.pool.free_block_count(), needed));
  if (given_most < tables.windows.sizes(WindowKind::kBlock).least / kBlockSize) return false;
  const size_t end = job.windows.ready().size() - std::min<size_t>(job.windows.ready().size(), kTradeSearchMax);
  for (size_t i = job.windows.ready().size(); i != end; --i) {
    const WindowIndex window = job.windows.ready()[i - 1];
    const bool holds_slots = tables.windows[window].shape.page_size == kPageSize;
    if (holds_slots || tables.windows[window].emptying || tables.windows.BlockCount(window) > given_most) continue;
    if (!MayTrade(tables, job, tables.windows.SizeOf(window))) continue;
    if (!job.pool.RegionEmpty(tables.windows.FirstBlock(window))) continue;
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
  const uint64_t in_block_windows = BlocksComing(job, WindowKind::kBlock);
  const uint64_t in_slot_windows = BlocksComing(job, WindowKind::kSlot);
  const uint64_t all = job.pool.free_block_count() + in_block_windows + in_slot_windows;
  const uint64_t blocks = need.blocks + slot_blocks;
  const uint64_t lacking = blocks - std::min(blocks, all);
  uint64_t for_slots = job.pool.free_slot_block_count() + in_slot_windows;
  if (!tables.ports.windows.block_windows_take_slots()) return {.slots = slot_blocks > for_slots, .blocks = lacking};
  // Block windows that come can hold slots as well: a slot window is for what they leave.
  for_slots += in_block_windows;
  return {.slots = need.blocks <= all && (lacking != 0 || slot_blocks > for_slots), .blocks = lacking};
}

bool MayMoveForSlots(const Tables& tables, const JobState& job) {
  const Ledger& ledger = tables.ledger;
  return tables.ports.copier != nullptr && tables.merge.phase() == MergePhase::kNone && !tables.hand_over.emptying() &&
         !ledger.anybody_owed() && !ledger.serving() && !ledger.wishes() && job.windows.returning() == 0 &&
         ledger.closing_bytes() == 0 &&
         job.windows.merge_pause(WindowKind::kBlock)
             .over(tables.turn.now(), GroundsForMerge(tables, job, WindowKind::kBlock));
}

// Where no block window is empty: has the one with least in it emptied by moves into the free blocks of the others
// (MergeWindows). It begins with this turn's end, and has these blocks first.
void WishForSlots(Tables& tables, JobState& job, const Need& need) {
  if (!MayMoveForSlots(tables, job)) return;
  const uint64_t free = job.pool.free_block_count();
  size_t left = kTradeSearchMax;
  tables.windows.order().ForEach(job.index, WindowOrder::kFirstUsed, WindowOrder::kRanks, [&](WindowIndex window) {
    const WindowEntry& entry = tables.windows[window];
    const uint64_t blocks = tables.windows.BlockCount(window);
    const bool movable = entry.shape.page_size != kPageSize && !entry.emptying && !entry.passed_over &&
                         MayTrade(tables, job, entry.shape.size);
    if (!movable || blocks + need.blocks > free) return left-- != 0;
    tables.merge.WishForSlots({.job = job.id, .window = window});
    tables.turn.NoteProgress();
    return false;
  });
}

bool StartForSlots(Tables& tables, JobState& job, const Need& need) {
  // Its memory is free at once where no session maps it.
  const bool fits = FittingSize(tables, job, WindowKind::kSlot, need, Overshoot::kAllowed) != 0;
  if (!fits && !GiveBlockWindowBack(tables, job, need)) WishForSlots(tables, job, need);
  return TryStartForSlots(tables, job, need);
}

void LookAgain(Tables& tables, JobState& job) {
  job.windows.SetHasAhead(true);
  tables.ahead.Add(job.id, tables.turn.now() + kAheadKept);
}

// The last ones first. What the job needed once stays.
void GiveBackUnneeded(Tables& tables, JobState& job) {
  uint64_t unneeded = UnneededBytes(tables, job);
  if (unneeded < tables.windows.grain()) return;
  const WindowSet overdue = WindowsOfOverdueSessions(job);
  const std::vector<WindowIndex>& ready = job.windows.ready();
  for (size_t i = ready.size(); i != 0 && unneeded >= tables.windows.grain(); --i) {
    const WindowIndex window = ready[i - 1];
    const uint64_t size = tables.windows.SizeOf(window);
    const bool may_go = size <= unneeded && !tables.windows[window].emptying && !overdue.Contains(window);
    if (!may_go || !job.pool.RegionEmpty(tables.windows.FirstBlock(window))) continue;
    ReturnWindow(tables, window);
    unneeded -= size;
  }
  // What is left of that lies beside pieces.
  if (unneeded >= tables.windows.grain()) tables.merge.NoteUnneeded();
  tables.merge.LookAgain(tables.windows.capacity());
}

// One more window for what is lacking may be had now, as far as the ledger and the size of the arena tell.
bool MayStartMore(const Tables& tables, const JobState& job, const Need& need, const Lack& lack) {
  const auto fits = [&](WindowKind kind) { return FittingSize(tables, job, kind, need, Overshoot::kAllowed) != 0; };
  const bool for_slots = lack.slots && fits(WindowKind::kSlot);
  if (for_slots || lack.blocks == 0) return for_slots;
  return fits(WindowKind::kBlock) || (!tables.ports.windows.block_windows_come() && fits(WindowKind::kSlot));
}

// What a need still lacks when no more windows are to be had, or when the turn may start no more.
struct Shortfall {
  bool slots = false;   // No slot window came: slots take whole blocks.
  uint64_t blocks = 0;  // There are so many too few, for both.
  bool later = false;   // Some are coming, and then more can be started.
};

// At least one window, and others while the turn may start any. Those that are being made then bring the job back here
// (TakeWindow).
Shortfall StartWindows(Tables& tables, JobState& job, const Need& need) {
  Shortfall left;
  for (bool first = true;; first = false) {
    Lack lack = LackOf(tables, job, need);
    lack.slots = lack.slots && !left.slots;
    if (!lack.slots && lack.blocks == 0) return left;
    const bool may_start = first || !job.windows.makes_any() || tables.work.may_start_window();
    if (!may_start && MayStartMore(tables, job, need, lack)) {
      left.blocks = lack.blocks;
      left.later = true;
      return left;
    }
    if (lack.slots) {
      left.slots = !StartForSlots(tables, job, need);
    } else if (!StartForBlocks(tables, job, need)) {
      left.blocks = lack.blocks;
      return left;
    }
  }
}

void StartAhead(Tables& tables, JobState& job) {
  const uint64_t used = job.used_pages();
  // Not when the arena is getting full: what is made ahead here is missing elsewhere.
  if (tables.ports.windows.arena_bytes() > tables.ports.windows.arena_max_bytes() / 4 * 3) return;
  const auto ahead_of = [](uint64_t pages) { return std::min(pages / kAheadDivisor, kAheadBytesMax / kPageSize); };
  const uint64_t scattered = ScatteredPages(job);
  // Moves in RAM have taken pages there beside those of pieces, and nothing new lies in closed blocks.
  const uint64_t in_slots = std::min(used, job.pool.slot_block_count() * kPagesPerBlock - scattered);
  const uint64_t blocks_ahead = ahead_of(used - in_slots);
  if (job.pool.free_block_count() * kPagesPerBlock < blocks_ahead) {
    StartWindows(tables, job, {.blocks = blocks_ahead / kPagesPerBlock + 1, .fresh_pages = blocks_ahead});
  }
  const uint64_t slots_ahead = ahead_of(in_slots);
  const uint64_t for_slots = scattered + job.pool.free_slot_block_count() * kPagesPerBlock;
  if (for_slots >= slots_ahead) return;
  const Need need{.slot_pages = slots_ahead, .fresh_pages = slots_ahead};
  const uint64_t size = FittingSize(tables, job, WindowKind::kSlot, need, Overshoot::kNo);
  // Most of a window that is larger would be held for nothing.
  if (size != 0 && size <= slots_ahead * kPageSize) (void)StartWindow(tables, job, WindowKind::kSlot, size);
}

}  // namespace

memory::WindowWishes WishesFor(const Tables& tables, const JobState& job, WindowKind kind, uint64_t needed_bytes) {
  return tables.ports.windows.wishes({.kind_bytes = HeldIn(tables, job, kind) + needed_bytes,
                                      .all_bytes = tables.ledger.HeldBy(job.entitlement) + needed_bytes});
}

uint64_t MergedBytes(const Tables& tables, const JobState& job, WindowKind kind) {
  return std::min(WishesFor(tables, job, kind, 0).merged, tables.windows.sizes(kind).most);
}

MergeGrounds GroundsForMerge(const Tables& tables, const JobState& job, WindowKind kind) {
  return {.requested_at = job.sessions.requested_at(),
          .sessions = job.sessions.size(),
          .used_pages = job.used_pages(),
          .free_pages = job.pool.free_pages(),
          .wished_bytes = MergedBytes(tables, job, kind)};
}

uint64_t UnneededBytes(const Tables& tables, const JobState& job) {
  const uint64_t held = tables.ledger.HeldBy(job.entitlement);
  return held - std::min(held, std::max(job.windows.peak_pages(), job.used_pages()) * kPageSize);
}

bool MayHoldForMerge(const Tables& tables, const JobState& job, uint64_t window_bytes) {
  const Ledger& ledger = tables.ledger;
  const memory::WindowSource& source = tables.ports.windows;
  const uint64_t counted = ledger.HeldBy(job.entitlement) + ledger.KeptBy(job.entitlement);
  const uint64_t promised = AlignUp(ledger.PromisedTo(job.entitlement), tables.windows.grain());
  // What it borrows must be able to go back, and a merge would have been for nothing then.
  return counted + window_bytes <= std::max(promised, ledger.FirmBytes(job.entitlement)) &&
         ledger.GrowthOf(job.entitlement, window_bytes) == Growth::kOwn &&
         ledger.MayGrow(job.entitlement, window_bytes) &&
         source.arena_bytes() + window_bytes <= source.arena_max_bytes();
}

bool SlotsTakeBlocks(const Tables& tables, const JobState& job) {
  return job.windows.slots_take_blocks(tables.windows.memory_gain());
}

bool MayHoldMore(const Tables& tables, const JobState& job, uint64_t window_bytes, uint64_t needed_pages,
                 uint64_t fresh_pages) {
  const Growth growth = tables.ledger.GrowthOf(job.entitlement, window_bytes);
  return growth == Growth::kOwn || (growth == Growth::kBorrowed && MayBorrow(tables, job, needed_pages, fresh_pages));
}

uint64_t BlocksComing(const JobState& job, WindowKind kind) { return job.windows.making_bytes(kind) / kBlockSize; }

uint64_t HeldIn(const Tables& tables, const JobState& job, WindowKind kind) {
  const uint64_t slots =
      job.pool.block_count(base::RegionUse::kSlotsFirst) * kBlockSize + job.windows.making_bytes(WindowKind::kSlot);
  const uint64_t held = tables.ledger.HeldBy(job.entitlement);
  TIER_CHECK(slots <= held, "job {}: {} bytes of slot windows of {}", job.key, slots, held);
  return kind == WindowKind::kSlot ? slots : held - slots;
}

bool StartForBlocks(Tables& tables, JobState& job, const Need& need) {
  if (TryStart(tables, job, WindowKind::kBlock, need, Overshoot::kNo)) return true;
  if (tables.ports.windows.block_windows_come()) return false;  // Not in small pages while huge ones lie idle.
  return TryStartSlotWindow(tables, job, need) || TryStart(tables, job, WindowKind::kBlock, need, Overshoot::kAllowed);
}

bool TryStartForSlots(Tables& tables, JobState& job, const Need& need) {
  const bool started = TryStartSlotWindow(tables, job, need);
  // Not those that another window's blocks move to.
  LetSlotsTakeBlocks(tables, job, !started && !tables.merge.makes_room_for_slots(job.id));
  return started;
}

Grown Grow(Tables& tables, JobState& job, const Need& need) {
  const Shortfall left = StartWindows(tables, job, need);
  if (left.later) {
    // What it is owed stays owed: others would have taken the memory when the job comes back here.
    const uint64_t lacking = std::max(left.blocks * kBlockSize, tables.windows.grain());
    if (tables.ledger.ClaimedBy(job.entitlement) != 0) tables.ledger.Claim(job.entitlement, lacking, tables.turn.now());
    return Grown::kLater;
  }
  if (left.blocks == 0) {
    tables.ledger.DropClaim(job.entitlement);
  } else {
    tables.ledger.Claim(job.entitlement, left.blocks * kBlockSize, tables.turn.now());
    (void)Borrow(tables, job, left.blocks * kBlockSize);
  }
  return left.blocks == 0 && !left.slots ? Grown::kAll : Grown::kShort;
}

bool Borrow(Tables& tables, const JobState& job, uint64_t bytes) {
  const memory::WindowSource& source = tables.ports.windows;
  const uint64_t grain = tables.windows.grain();
  if (tables.ledger.anybody_owed() || tables.ledger.QuotaTaken(job.entitlement, grain)) return false;
  if (!MayHoldMore(tables, job, grain, 0, 0)) return false;
  const uint64_t left = source.arena_max_bytes() - std::min(source.arena_bytes(), source.arena_max_bytes());
  return tables.ledger.Wish(job.entitlement, left + bytes, tables.turn.now());
}

void GrowByOne(Tables& tables, JobState& job, const Need& need) {
  if (job.windows.makes_any()) return;
  const bool for_blocks = need.slot_pages == 0 || need.blocks > job.pool.free_block_count();
  if (for_blocks ? StartForBlocks(tables, job, need) : StartForSlots(tables, job, need)) return;
  // Where all that it lacks is claimed (Grow), that claim stands: with one window at a time each would take an interval
  // of hand-over.
  if (tables.ledger.ClaimedBy(job.entitlement) != 0) return;
  tables.ledger.Claim(job.entitlement, tables.windows.grain(), tables.turn.now());
}

void GrowAhead(Tables& tables, JobState& job) {
  job.windows.NoteUse(job.used_pages(), tables.turn.now());
  const bool rises = tables.turn.now() < job.windows.rose_at() + kAheadKept;
  if (job.used_pages() != 0 && rises && !job.windows.makes_any()) StartAhead(tables, job);
  // Also for windows that it needs: a part of the last one stays unused.
  if (job.windows.makes_any() && !job.windows.has_ahead()) LookAgain(tables, job);
}

void GiveBackAhead(Tables& tables) {
  while (tables.ahead.any() && tables.ahead.oldest().at <= tables.turn.now()) {
    JobState* const job = tables.jobs.Find(tables.ahead.oldest().job);
    tables.ahead.PopOldest();
    if (job == nullptr) continue;
    job->windows.SetHasAhead(false);
    const bool rises = tables.turn.now() < job->windows.rose_at() + kAheadKept;
    // Where a job is owed memory, hand-over decides what goes. Where it lacks an index, any window helps.
    const bool owed = tables.ledger.anybody_owed() || tables.ledger.serving();
    const bool scarce = (owed && !tables.windows.index_lacked()) || tables.waits.shortage_pages(*job) != 0;
    const bool merges = tables.merge.merges(job->id);  // It holds more than it needs, until the small ones have gone.
    if (rises || scarce || merges || job->windows.makes_any()) {
      LookAgain(tables, *job);
    } else {
      GiveBackUnneeded(tables, *job);
    }
  }
}

}  // namespace tier::tiering
