// See merging.h.
#include "daemon/tiering/memory/merging.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

#include "daemon/memory/arena_sizing.h"
#include "daemon/tiering/memory/emptying.h"
#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/memory/window_ownership.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kBlockCost = 2;  // Of a window that is chosen: it is closed now, and perhaps opened again.

// Which windows of a job may go into one of so many bytes.
struct Wanted {
  WindowKind kind = WindowKind::kBlock;
  uint32_t page_size = 0;
  uint64_t target_bytes = 0;
  bool used_only = false;  // The use of the job rises: its empty windows are made ahead of need.
  WindowIndex kept{};      // Others were merged into it not long ago.
  WindowSet not_asked{};   // Clients that do not answer map them.

  bool Takes(WindowIndex window, const WindowEntry& entry) const {
    // What lies in one that was passed over found no hole the last time.
    return entry.shape.kind == kind && entry.shape.page_size == page_size &&
           entry.shape.size <= target_bytes / kMergedMin && !entry.passed_over && window != kept &&
           !not_asked.Contains(window);
  }
};

// What is asked of a client that is stopped would be taken without its answer one day, and reported as its failure.
WindowSet WindowsNotAskedFor(const JobState& job) {
  WindowSet windows = WindowsOfOverdueSessions(job);
  for (const SessionState* session : job.sessions) {
    if (session->windows.silent()) windows.AddAll(session->windows.mapped());
  }
  return windows;
}

Wanted WantedOf(const Tables& tables, const JobState& job, const memory::WindowShape& shape, uint64_t target_bytes) {
  return {.kind = shape.kind,
          .page_size = shape.page_size,
          .target_bytes = target_bytes,
          .used_only = tables.turn.now() < job.windows.rose_at() + kAheadKept,
          .kept = job.windows.merge_pause(shape.kind).kept_target(tables.turn.now()),
          .not_asked = WindowsNotAskedFor(job)};
}

// Windows of a job that are looked at in one go: two such searches take a quarter of what a turn may do.
uint32_t SeenMax(const Tables& tables) { return std::max(tables.work.units().move / 8, 1U); }
uint32_t CostOfSearch(const Tables& tables, const JobState& job) {
  const size_t seen = job.windows.ready().size() + job.sessions.size();
  return static_cast<uint32_t>(std::min<size_t>(seen, tables.work.units().move / 8));
}

// Calls visit(window) for windows that may go, those with least to move first, until it returns false.
template <typename Visit>
void ForEachToMerge(const Tables& tables, const JobState& job, const Wanted& wanted, Visit visit) {
  const uint32_t first = wanted.used_only ? WindowOrder::kFirstUsed : 0;
  uint32_t left = SeenMax(tables);
  tables.windows.order().ForEach(job.index, first, WindowOrder::kRanks, [&](WindowIndex window) {
    if (left-- == 0) return false;
    return !wanted.Takes(window, tables.windows[window]) || visit(window);
  });
}

// Hand-over has nothing to do, and no window on its way. A job that lacks an index waits for no memory: a merge of
// others brings it one.
bool HandOverRests(const Tables& tables) {
  const Ledger& ledger = tables.ledger;
  if (tables.hand_over.emptying() || ledger.host_debt() != 0 || ledger.unbacked_bytes() != 0) return false;
  const bool anybody_waits = ledger.anybody_owed() || ledger.serving() || ledger.wishes();
  return !anybody_waits || (tables.windows.index_lacked() && ledger.BytesToAskBack() == 0);
}

// A new block window has such pages: what lies in others cannot move there.
bool HasPagesOfNew(const Tables& tables, const WindowEntry& entry) {
  if (entry.shape.kind == WindowKind::kSlot) return true;
  return (entry.shape.page_size == kPageSize) == tables.ports.windows.block_windows_take_slots();
}

bool MayMerge(const Tables& tables, const JobState& job) {
  return !job.record.closing && !job.windows.makes_any() && job.windows.emptying_bytes() == 0 &&
         tables.waits.shortage_pages(job) == 0;
}

// Bytes in the windows that would go into one of the largest size, by the sizes of these: of 2^n blocks.
using BytesBySize = std::array<uint64_t, std::bit_width(kWindowSizeMax / kBlockSize)>;

BytesBySize CountBytes(const Tables& tables, const JobState& job, const Wanted& wanted) {
  BytesBySize bytes{};
  ForEachToMerge(tables, job, wanted, [&](WindowIndex window) {
    const uint64_t size = tables.windows.SizeOf(window);
    bytes[static_cast<size_t>(std::countr_zero(size / kBlockSize))] += size;
    return true;
  });
  return bytes;
}

// The windows that are small enough fill one of that size.
bool Fill(const BytesBySize& bytes, uint64_t target_bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size() && (kBlockSize << i) <= target_bytes / kMergedMin; ++i) sum += bytes[i];
  return sum >= target_bytes;
}

// What the job's free pages take in beside those of the windows that go.
struct Room {
  explicit Room(const base::BlockPool& pool)
      : pages(pool.free_pages()),
        in_blocks(uint64_t{pool.free_block_count()} * kPagesPerBlock),
        for_slots(pages - uint64_t{pool.free_block_count() - pool.free_slot_block_count()} * kPagesPerBlock) {}
  bool TryTake(const WindowEntry& entry) {
    const uint64_t used = entry.used_pages();
    const uint64_t used_blocks = entry.pages_of(RamClass::kBlock);
    const uint64_t own = entry.shape.size / kPageSize - used;
    const uint64_t own_for_slots = entry.shape.page_size == kPageSize ? own : 0;
    if (used + own > pages || used_blocks > in_blocks || used - used_blocks + own_for_slots > for_slots) return false;
    pages -= used + own;
    in_blocks -= std::min(in_blocks, used_blocks + own);
    for_slots -= used - used_blocks + own_for_slots;
    return true;
  }

  uint64_t pages = 0;
  uint64_t in_blocks = 0;
  uint64_t for_slots = 0;
};

// Windows that go: not more bytes than so many, nor more than the turn has work for. Others are for another merge.
std::vector<WindowIndex> WindowsToEmpty(const Tables& tables, const JobState& job, const Wanted& wanted,
                                        uint64_t bytes_max) {
  std::vector<WindowIndex> windows;
  Room room(job.pool);
  uint32_t work = tables.work.left();
  ForEachToMerge(tables, job, wanted, [&](WindowIndex window) {
    const WindowEntry& entry = tables.windows[window];
    const uint32_t cost = kBlockCost * tables.windows.BlockCount(window);
    if (entry.shape.size > bytes_max) return true;
    if ((cost > work && !windows.empty()) || !room.TryTake(entry)) return false;
    work -= std::min(work, cost);
    bytes_max -= entry.shape.size;
    windows.push_back(window);
    return true;
  });
  return windows;
}

void EmptyWindows(Tables& tables, const std::vector<WindowIndex>& windows) {
  for (const WindowIndex window : windows) {
    tables.work.Charge(kBlockCost * tables.windows.BlockCount(window));
    StartEmptying(tables, window);
  }
  tables.merge.StartEmptying();
  tables.turn.NoteProgress();
}

// What the job has free already takes in some windows, such as a large window of which it uses a part: windows of any
// size, for what it holds too much. While its use rises it will need that room itself.
std::vector<WindowIndex> WindowsForFreeRoom(const Tables& tables, const JobState& job, Wanted wanted) {
  const uint64_t unneeded = UnneededBytes(tables, job);
  const uint64_t too_much = tables.ledger.HeldBy(job.entitlement) / memory::kWindowsHeld;
  if (wanted.used_only || unneeded < std::max(too_much, tables.windows.grain())) return {};
  wanted.target_bytes = kMergedMin * kWindowSizeMax;
  return WindowsToEmpty(tables, job, wanted, unneeded);
}

// Nothing else can be merged. What found no hole is tried again after a pause: things may have changed by then.
void LookAtPassedOver(Tables& tables, JobState& job, WindowKind kind) {
  uint32_t left = SeenMax(tables);
  bool any = false;
  tables.windows.order().ForEach(job.index, WindowOrder::kFirstUsed, WindowOrder::kRanks, [&](WindowIndex window) {
    if (left-- == 0) return false;
    WindowEntry& entry = tables.windows.Edit(window);
    if (entry.shape.kind != kind || !entry.passed_over) return true;
    entry.passed_over = false;
    any = true;
    return true;
  });
  if (any) job.windows.EditMergePause(kind).Extend(tables.turn.now());
}

bool StartIntoFreeRoom(Tables& tables, const JobState& job, const Wanted& wanted) {
  const std::vector<WindowIndex> windows = WindowsForFreeRoom(tables, job, wanted);
  if (windows.empty()) return false;
  tables.merge.Start({.job = job.id, .kind = wanted.kind, .target = MergeState::kNoTarget});
  EmptyWindows(tables, windows);
  return true;
}

// The larger window is started, if others would fill it; where that has no room, a smaller one.
bool StartIntoTarget(Tables& tables, JobState& job, const Wanted& wanted) {
  const BytesBySize bytes = CountBytes(tables, job, wanted);
  const uint64_t unneeded = wanted.used_only ? 0 : UnneededBytes(tables, job);
  const uint64_t least = kMergedMin * tables.windows.sizes(wanted.kind).least;
  for (uint64_t size = wanted.target_bytes; size >= least; size /= 2) {
    if (!Fill(bytes, size) || !MayHoldForMerge(tables, job, size)) continue;
    const std::optional<WindowIndex> target = StartWindow(tables, job, wanted.kind, size, WindowPurpose::kMerge);
    if (!target) return false;
    tables.merge.Start({.job = job.id, .kind = wanted.kind, .target = *target, .unneeded = unneeded});
    return true;
  }
  return false;
}

// Windows go into room that the job has already, if they did not fail to last time; else into a larger window.
bool StartMerge(Tables& tables, JobState& job, const WindowEntry& any) {
  const WindowKind kind = any.shape.kind;
  const Wanted wanted = WantedOf(tables, job, any.shape, MergedBytes(tables, job, kind));
  if (!tables.ports.windows.wants_merges()) return StartIntoFreeRoom(tables, job, wanted);
  const bool target_first = job.windows.merge_pause(kind).target_first();
  if (!target_first && StartIntoFreeRoom(tables, job, wanted)) return true;
  if (StartIntoTarget(tables, job, wanted)) return true;
  if (target_first && StartIntoFreeRoom(tables, job, wanted)) return true;
  LookAtPassedOver(tables, job, kind);
  return false;
}

// The windows of the next one's job may be merged, and were not looked through yet. Where indices suffice, small jobs
// are not worth moving what lies in theirs.
bool IsToTry(Tables& tables, const JobState& job, WindowKind kind) {
  MergeState& state = tables.merge;
  if (state.tried(job.index, kind) || !MayMerge(tables, job)) return false;
  const bool large = tables.ledger.HeldBy(job.entitlement) >= memory::kSmallJob;
  if (!large && !tables.ports.windows.wants_merges()) return false;
  const MergePause& pause = job.windows.merge_pause(kind);
  if (pause.over(tables.turn.now(), GroundsForMerge(tables, job, kind))) return true;
  if (tables.turn.now() < pause.until()) state.NotePaused(pause.until());
  state.NoteTried(job.index, kind);
  return false;
}

void Walk(Tables& tables) {
  MergeState& state = tables.merge;
  const uint32_t windows = tables.windows.capacity();
  for (uint32_t seen = 0; state.any_left() && seen < kMergeWalkMax && tables.work.TrySpend(); ++seen) {
    const WindowEntry& entry = tables.windows[state.window()];
    const bool may_go = entry.rank() != WindowOrder::kNone && HasPagesOfNew(tables, entry);
    if (!may_go || !IsToTry(tables, tables.jobs.At(entry.job), entry.shape.kind)) {
      state.Advance(windows);
      continue;
    }
    JobState& job = tables.jobs.At(entry.job);
    if (!tables.work.TrySpend(2 * CostOfSearch(tables, job))) break;  // The next turn begins with it.
    state.NoteTried(job.index, entry.shape.kind);
    state.Advance(windows);
    if (StartMerge(tables, job, entry)) return;
  }
  if (state.any_left()) return tables.turn.NoteProgress();
  if (tables.ports.windows.wants_merges()) return state.NotePaused(tables.turn.now() + kMergeWalkInterval);
  state.ClearUnneeded();
  state.LookAgain(windows);  // Once indices run short.
}

bool OwnsTarget(const Tables& tables, const JobState& job, WindowCondition condition) {
  if (tables.merge.merge().target == MergeState::kNoTarget) return false;
  const WindowEntry& target = tables.windows[tables.merge.merge().target];
  return target.condition == condition && target.job == job.index && target.owner == job.record.owner;
}

// How many windows the job has fewer decides when those of this kind are merged again.
void EndMerge(Tables& tables, size_t chosen) {
  MergeState& state = tables.merge;
  const Merge& merge = state.merge();
  if (JobState* const job = tables.jobs.Find(merge.job)) {
    MergePause& pause = job->windows.EditMergePause(merge.kind);
    const bool has_target = OwnsTarget(tables, *job, WindowCondition::kReady);
    const bool is_used = has_target && !job->pool.RegionEmpty(tables.windows.FirstBlock(merge.target));
    if (is_used) pause.KeepTarget(merge.target, tables.turn.now());
    const bool fewer = state.returned() > (has_target ? 1U : 0U);
    state.CountEnd(fewer);
    pause.SetTargetFirst(!fewer && merge.target == MergeState::kNoTarget);
    if (!fewer) {
      pause.Extend(tables.turn.now());
      pause.NoteInVain(GroundsForMerge(tables, *job, merge.kind));
    } else if (2 * size_t{state.returned()} < chosen) {
      pause.Begin(tables.turn.now());  // What lies in the others is leased or busy now.
    } else if (has_target) {
      pause.Reset();
    }
  }
  state.End();
  state.LookAgain(tables.windows.capacity());
  tables.turn.NoteProgress();
}

// The job has the larger window: as many bytes go as came with it, and what the job held too much before. Its peak does
// not matter: it may have lost some of what it needed once.
void EmptyIntoTarget(Tables& tables, const JobState& job) {
  const Merge& merge = tables.merge.merge();
  const memory::WindowShape& target = tables.windows[merge.target].shape;
  if (!tables.work.TrySpend(CostOfSearch(tables, job))) return tables.turn.NoteProgress();
  const Wanted wanted = WantedOf(tables, job, target, target.size);
  EmptyWindows(tables, WindowsToEmpty(tables, job, wanted, merge.unneeded + target.size));
}

// Returns windows that were emptied, as far as the turn's work reaches: each is asked of all sessions of the job.
// False: others are left for the next turn.
bool ReturnEmptied(Tables& tables, const JobState& job) {
  MergeState& state = tables.merge;
  const std::vector<WindowIndex>& windows = tables.hand_over.windows();
  const WindowSet not_asked = WindowsNotAskedFor(job);  // As of now: a client may have been stopped meanwhile.
  const uint32_t before = state.returned();
  tables.work.Charge(static_cast<uint32_t>(job.sessions.size()));
  for (; state.seen() < windows.size(); state.NoteSeen()) {
    const WindowIndex window = windows[state.seen()];
    const WindowEntry& entry = tables.windows[window];
    if (state.returned() != before && tables.work.left() < 1 + job.sessions.size()) return false;
    tables.work.Charge(1);
    if (!entry.emptying || not_asked.Contains(window)) continue;
    TIER_CHECK(entry.job == job.index, "window {} of another job is merged", tier::Value(window));
    if (!job.pool.RegionEmpty(tables.windows.FirstBlock(window))) continue;
    state.NoteReturned(entry.shape.size);
    ReturnWindow(tables, window);
  }
  return true;
}

// Returns the windows that were emptied, and the larger one if it takes the place of none.
void Finish(Tables& tables) {
  MergeState& state = tables.merge;
  const JobState* const job = tables.jobs.Find(state.merge().job);
  const size_t chosen = tables.hand_over.windows().size();
  if (job != nullptr && !ReturnEmptied(tables, *job)) return tables.turn.NoteProgress();
  EndPass(tables);
  const bool in_vain = state.returned_bytes() <= state.merge().unneeded;
  if (job != nullptr && in_vain && OwnsTarget(tables, *job, WindowCondition::kReady) &&
      job->pool.RegionEmpty(tables.windows.FirstBlock(state.merge().target))) {
    ReturnWindow(tables, state.merge().target);
  }
  EndMerge(tables, chosen);
}

// The larger window is being made.
void AwaitTarget(Tables& tables) {
  const JobState* const job = tables.jobs.Find(tables.merge.merge().job);
  const bool goes_on = job != nullptr && !job->record.closing;
  if (goes_on && OwnsTarget(tables, *job, WindowCondition::kMaking)) return;
  const bool has_come = goes_on && OwnsTarget(tables, *job, WindowCondition::kReady);
  if (has_come && HandOverRests(tables)) return EmptyIntoTarget(tables, *job);
  EndMerge(tables, 0);
}

// One window goes, so that a slot window can come.
void StartForSlots(Tables& tables, const SlotWish& wish) {
  JobState* const job = tables.jobs.Find(wish.job);
  if (job == nullptr || job->record.closing) return;
  const WindowEntry& entry = tables.windows[wish.window];
  const bool may_go = entry.rank() != WindowOrder::kNone && entry.job == job->index && !entry.emptying;
  if (may_go && HandOverRests(tables) && !WindowsNotAskedFor(*job).Contains(wish.window)) {
    tables.merge.Start(
        {.job = job->id, .kind = WindowKind::kBlock, .target = MergeState::kNoTarget, .for_slots = true});
    return EmptyWindows(tables, {wish.window});
  }
  // Slots take blocks instead.
  job->windows.EditMergePause(WindowKind::kBlock).Begin(tables.turn.now());
  tables.waits.OnRoom(*job);
}

}  // namespace

void StopMerge(Tables& tables) {
  if (tables.merge.phase() == MergePhase::kNone) return;
  const size_t chosen = tables.hand_over.windows().size();
  if (tables.merge.emptying()) EndPass(tables);
  EndMerge(tables, chosen);
}

void MergeWindows(Tables& tables) {
  MergeState& state = tables.merge;
  switch (state.phase()) {
    case MergePhase::kNone:
      if (const std::optional<SlotWish> wish = state.TakeSlotWish()) return StartForSlots(tables, *wish);
      if (state.retry_due(tables.turn.now())) state.LookAgain(tables.windows.capacity());
      if (!state.any_left() || (!state.unneeded() && !tables.ports.windows.wants_merges())) return;
      if (tables.ports.copier == nullptr || !HandOverRests(tables)) return;
      tables.work.Divide(2, [&] { Walk(tables); });  // The rest is for devices that are to be emptied.
      return;
    case MergePhase::kMaking: return AwaitTarget(tables);
    case MergePhase::kEmptying:
      if (!tables.hand_over.emptying() || (tables.hand_over.looked() && !tables.hand_over.moving())) Finish(tables);
      return;
  }
}

}  // namespace tier::tiering
