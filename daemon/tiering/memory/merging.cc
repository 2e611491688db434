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

// What a window must be to be merged into one of so many bytes.
struct Wanted {
  WindowKind kind = WindowKind::kBlock;
  uint32_t page_size = 0;
  uint64_t target_bytes = 0;

  bool Takes(const WindowEntry& entry) const {
    return entry.shape.kind == kind && entry.shape.page_size == page_size &&
           entry.shape.size <= target_bytes / kMergedMin;
  }
};

// Calls visit(window) for each window that would go, those with least to move first, until it returns false.
template <typename Visit>
void ForEachToMerge(const Tables& tables, const JobState& job, const Wanted& wanted, Visit visit) {
  tables.windows.order().ForEach(job.index, 0, WindowOrder::kRanks, [&](WindowIndex window) {
    return !wanted.Takes(tables.windows[window]) || visit(window);
  });
}

// Hand-over has nothing to do, and no window on its way.
bool HandOverRests(const Tables& tables) {
  const Ledger& ledger = tables.ledger;
  return !tables.hand_over.emptying() && !ledger.anybody_owed() && !ledger.serving() && ledger.host_debt() == 0 &&
         ledger.unbacked_bytes() == 0 && !ledger.wishes();
}

// A new block window has such pages: what lies in others cannot move there.
bool HasPagesOfNew(const Tables& tables, const WindowEntry& entry) {
  if (entry.shape.kind == WindowKind::kSlot) return true;
  return (entry.shape.page_size == kPageSize) == tables.ports.windows.block_windows_take_slots();
}

uint64_t TargetBytes(const Tables& tables, const JobState& job, WindowKind kind) {
  return std::min(WishesFor(tables, job, kind, 0).merged, tables.windows.sizes(kind).most);
}

bool MayMerge(const Tables& tables, const JobState& job) {
  return !job.windows.makes_any() && job.windows.emptying() == 0 && tables.waits.shortage_pages(job) == 0;
}

// Bytes in the windows that would go into one of the largest size, by the sizes of these: of 2^n blocks.
using BytesBySize = std::array<uint64_t, std::bit_width(kWindowSizeMax / kBlockSize)>;

BytesBySize CountBytes(Tables& tables, const JobState& job, const Wanted& wanted) {
  BytesBySize bytes{};
  ForEachToMerge(tables, job, wanted, [&](WindowIndex window) {
    tables.work.Charge(1);
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

// Windows that can go, those with least to move first, as far as the job holds more than it ever needed.
std::vector<WindowIndex> WindowsToEmpty(Tables& tables, const JobState& job, const Wanted& wanted) {
  std::vector<WindowIndex> windows;
  uint64_t unneeded = UnneededBytes(tables, job);
  Room room(job.pool);
  const WindowSet overdue = WindowsOfOverdueSessions(job);
  ForEachToMerge(tables, job, wanted, [&](WindowIndex window) {
    tables.work.Charge(1);
    const WindowEntry& entry = tables.windows[window];
    if (entry.shape.size > unneeded || overdue.Contains(window)) return true;
    if (!room.TryTake(entry)) return false;
    unneeded -= entry.shape.size;
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

// What the job has free already takes in some windows, such as a large window of which it uses a part: any windows of a
// job whose use does not rise, for what it holds too much; else as many as make a merge.
std::vector<WindowIndex> WindowsForFreeRoom(Tables& tables, const JobState& job, const Wanted& wanted) {
  const uint64_t too_much = tables.ledger.HeldBy(job.entitlement) / memory::kWindowsHeld;
  if (UnneededBytes(tables, job) < std::max(too_much, tables.windows.grain())) return {};
  const bool rises = tables.turn.now() < job.windows.rose_at() + kAheadKept;
  if (!rises) return WindowsToEmpty(tables, job, {wanted.kind, wanted.page_size, kMergedMin * kWindowSizeMax});
  std::vector<WindowIndex> windows = WindowsToEmpty(tables, job, wanted);
  if (windows.size() < kMergedMin) windows.clear();
  return windows;
}

// Windows go into room that the job has already. Else the larger window is started, if others would fill it; where that
// has no room, a smaller one.
bool StartMerge(Tables& tables, JobState& job, const WindowEntry& any) {
  Wanted wanted{.kind = any.shape.kind,
                .page_size = any.shape.page_size,
                .target_bytes = TargetBytes(tables, job, any.shape.kind)};
  if (!tables.merge.TakeJob(job.index, wanted.kind)) return false;
  const std::vector<WindowIndex> windows = WindowsForFreeRoom(tables, job, wanted);
  if (!windows.empty()) {
    tables.merge.Start(job.id, MergeState::kNoTarget);
    EmptyWindows(tables, windows);
    return true;
  }
  const BytesBySize bytes = CountBytes(tables, job, wanted);
  const uint64_t least = kMergedMin * tables.windows.sizes(wanted.kind).least;
  for (; wanted.target_bytes >= least; wanted.target_bytes /= 2) {
    if (!Fill(bytes, wanted.target_bytes) || !MayHoldForMerge(tables, job, wanted.target_bytes)) continue;
    const std::optional<WindowIndex> target = StartWindow(tables, job, wanted.kind, wanted.target_bytes);
    if (target) tables.merge.Start(job.id, *target);
    return target.has_value();
  }
  return false;
}

void Walk(Tables& tables) {
  MergeState& state = tables.merge;
  const uint32_t windows = tables.windows.capacity();
  for (uint32_t seen = 0; state.any_left() && seen < kMergeWalkMax && tables.work.TrySpend(); ++seen) {
    const WindowIndex window = state.Next(windows);
    const WindowEntry& entry = tables.windows[window];
    if (entry.rank() == WindowOrder::kNone || !HasPagesOfNew(tables, entry)) continue;
    JobState& job = tables.jobs.At(entry.job);
    if (MayMerge(tables, job) && StartMerge(tables, job, entry)) return;
  }
  if (state.any_left()) tables.turn.NoteProgress();
}

// The job has the larger window.
void EmptyIntoTarget(Tables& tables, const JobState& job) {
  const memory::WindowShape& target = tables.windows[tables.merge.target()].shape;
  EmptyWindows(tables, WindowsToEmpty(tables, job, {target.kind, target.page_size, target.size}));
}

// Returns the windows that were emptied, and the larger one if nothing has come to lie there.
void Finish(Tables& tables) {
  MergeState& state = tables.merge;
  const std::vector<WindowIndex> windows = tables.hand_over.windows();
  const auto is_empty = [&](WindowIndex window) {
    const WindowEntry& entry = tables.windows[window];
    if (entry.rank() == WindowOrder::kNone && !entry.emptying) return false;
    return tables.jobs.At(entry.job).pool.RegionEmpty(tables.windows.FirstBlock(window));
  };
  uint32_t merged = 0;
  tables.work.Charge(static_cast<uint32_t>(windows.size()));
  for (const WindowIndex window : windows) {
    if (!tables.windows[window].emptying || !is_empty(window)) continue;
    ReturnWindow(tables, window);
    ++merged;
  }
  EndPass(tables);
  state.End();
  const JobState* const job = tables.jobs.Find(state.job());
  const bool has_target = state.target() != MergeState::kNoTarget && job != nullptr &&
                          tables.windows[state.target()].job == job->index;
  // The job may have used it itself meanwhile, so that no window could go: that is no reason to wait.
  const bool unused = has_target && is_empty(state.target());
  if (unused) ReturnWindow(tables, state.target());
  if (unused || 2 * merged < windows.size()) state.SetNextAt(tables.turn.now() + kMergeRetryInterval);
  state.LookAgain(tables.windows.capacity());
  tables.turn.NoteProgress();
}

// False: it is not being made any more, and the job does not have it.
bool TargetComes(Tables& tables, const JobState* job) {
  const WindowEntry& target = tables.windows[tables.merge.target()];
  const bool there = target.condition == WindowCondition::kMaking || target.condition == WindowCondition::kReady;
  return job != nullptr && there && target.job == job->index && target.owner == job->record.owner;
}

}  // namespace

void StopMerge(Tables& tables) {
  if (tables.merge.phase() == MergePhase::kNone) return;
  if (tables.merge.emptying()) EndPass(tables);
  tables.merge.End();
}

void MergeWindows(Tables& tables) {
  MergeState& state = tables.merge;
  switch (state.phase()) {
    case MergePhase::kNone:
      if (!state.any_left() || tables.turn.now() < state.next_at() || !tables.ports.windows.wants_merges()) return;
      if (tables.ports.copier != nullptr && HandOverRests(tables)) Walk(tables);
      return;
    case MergePhase::kMaking: {
      JobState* const job = tables.jobs.Find(state.job());
      if (!TargetComes(tables, job)) return state.End();
      if (tables.windows[state.target()].condition != WindowCondition::kReady) return;
      if (HandOverRests(tables)) return EmptyIntoTarget(tables, *job);
      return state.End();
    }
    case MergePhase::kEmptying:
      if (!tables.hand_over.emptying()) return Finish(tables);
      if (tables.hand_over.looked() && !tables.hand_over.moving()) Finish(tables);
      return;
  }
}

}  // namespace tier::tiering
