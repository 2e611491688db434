// See hand_over.h.
#include "daemon/tiering/memory/hand_over.h"

#include <algorithm>
#include <unordered_map>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

uint32_t ReturnEmpty(Core& core, JobState& job, uint32_t wanted) {
  uint32_t returned = 0;
  const std::vector<WindowIndex> windows = job.windows;
  for (const WindowIndex window : windows) {
    if (returned == wanted) break;
    if (!job.pool.RegionEmpty(core.windows.FirstBlock(window))) continue;
    ReturnWindow(core, window);
    ++returned;
  }
  return returned;
}

// Chooses windows that can be emptied, fewest dirty pieces first.
uint32_t ChooseWindows(Core& core, const JobState& job, uint32_t wanted) {
  std::vector<std::pair<uint32_t, WindowIndex>> candidates;
  for (const WindowIndex window : job.windows) {
    const WindowEntry& entry = core.windows[window];
    TIER_CHECK(entry.condition == WindowCondition::kReady && !entry.emptying, "window {}", tier::Value(window));
    const uint32_t dirty = entry.count(WindowUse::kDirty);
    if (entry.count(WindowUse::kBound) != 0 || dirty + entry.count(WindowUse::kClean) == 0) continue;
    candidates.emplace_back(dirty, window);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, tier::Value(a.second)) < std::pair(b.first, tier::Value(b.second));
  });
  if (candidates.size() > wanted) candidates.resize(wanted);
  for (const auto& [dirty, window] : candidates) {
    core.windows[window].emptying = true;
    core.emptying.windows.push_back(window);
  }
  return static_cast<uint32_t>(candidates.size());
}

void StopEmptying(Core& core) {
  for (const WindowIndex window : core.emptying.windows) core.windows[window].emptying = false;
  core.emptying.windows.clear();
  core.emptying.pieces.clear();
  core.emptying.cursor = 0;
}

// Notes what is clean in the chosen windows, and starts the writes that make the rest so. True: every piece was seen.
bool LookForPieces(Core& core) {
  Emptying& emptying = core.emptying;
  const uint32_t capacity = core.pieces.capacity();
  TIER_CHECK(emptying.cursor <= capacity, "cursor {} of {}", emptying.cursor, capacity);
  const uint32_t end = emptying.cursor + std::min(capacity - emptying.cursor, kHandOverWorkMax);
  for (; emptying.cursor != end; ++emptying.cursor) {
    const PieceId id{emptying.cursor};
    const Piece& piece = core.pieces[id];
    if (!piece.ram || !core.windows[core.windows.WindowOf(piece.ram)].emptying) continue;
    const WindowUse use = UseOf(piece);
    JobState& job = core.JobOf(piece);
    if (use == WindowUse::kClean) emptying.pieces.push_back(id);
    if (use == WindowUse::kDirty && CanStartWrite(core, job)) StartWrite(core, id);
  }
  return emptying.cursor == capacity;
}

bool CanEmpty(const WindowEntry& entry) {
  const bool ready = entry.emptying && entry.condition == WindowCondition::kReady;
  return ready && entry.count(WindowUse::kDirty) == 0 && entry.count(WindowUse::kBound) == 0;
}

// Windows that a holder may lose: what it has beyond its guarantee, and one where that is less.
uint32_t MostOf(const Core& core, const JobState& job) {
  const uint64_t held = WindowBytes(core, job);
  const uint64_t guarantee = GuaranteeOf(core, job);
  if (held <= guarantee) return 0;
  return static_cast<uint32_t>(std::max<uint64_t>((held - guarantee) / core.windows.window_size(), 1));
}

// Since they were chosen the guarantees may have changed, and what their owners hold.
void SpareGuaranteed(Core& core) {
  std::unordered_map<const JobState*, uint32_t> taken;
  for (const WindowIndex window : core.emptying.windows) {
    WindowEntry& entry = core.windows[window];
    if (entry.emptying && ++taken[entry.job] > MostOf(core, *entry.job)) entry.emptying = false;
  }
}

// Evicts windows that hold nothing but clean pieces now. The others were written from, and are looked at again.
void ReturnEmptied(Core& core) {
  SpareGuaranteed(core);
  for (const PieceId id : core.emptying.pieces) {
    const Piece& piece = core.pieces[id];
    if (piece.ram && CanEmpty(core.windows[core.windows.WindowOf(piece.ram)])) Evict(core, id);
  }
  for (const WindowIndex window : core.emptying.windows) {
    const WindowEntry& entry = core.windows[window];
    if (!CanEmpty(entry) || !entry.job->pool.RegionEmpty(core.windows.FirstBlock(window))) continue;
    ReturnWindow(core, window);
  }
}

void EmptyWindows(Core& core) {
  if (core.emptying.windows.empty() || !LookForPieces(core)) return;
  ReturnEmptied(core);
  StopEmptying(core);
}

// Windows it waits for and is entitled to.
uint32_t WindowsOwed(const Core& core, const JobState& job) {
  if (job.shortage_pages == 0 || WindowBytes(core, job) >= GuaranteeOf(core, job)) return 0;
  if (!MayGrow(core, job, job.shortage_pages * kPageSize)) return 0;
  const uint64_t window_pages = core.windows.window_pages();
  const uint64_t free_pages = std::min(job.pool.free_pages(), job.shortage_pages);
  return static_cast<uint32_t>((job.shortage_pages - free_pages) / window_pages + 1);
}

uint32_t ReturningWindows(const Core& core) {
  uint32_t returning = 0;
  for (const auto& [id, job] : core.jobs) returning += job->windows_returning;
  return returning;
}

}  // namespace

void StopHandOver(Core& core) { StopEmptying(core); }

void HandOver(Core& core) {
  uint32_t owed = 0;
  std::vector<JobState*> holders;
  for (const auto& [id, job] : core.jobs) {
    owed += WindowsOwed(core, *job);
    if (WindowBytes(core, *job) > GuaranteeOf(core, *job)) holders.push_back(job.get());
  }
  const uint64_t arena_max = core.ports.windows.arena_max_bytes();
  const uint64_t spare = arena_max - std::min(arena_max, core.ports.windows.arena_bytes());
  const uint64_t coming = ReturningWindows(core) + spare / core.windows.window_size();
  if (owed <= coming) return StopEmptying(core);
  owed -= static_cast<uint32_t>(coming);
  const auto excess = [&](const JobState* job) { return WindowBytes(core, *job) - GuaranteeOf(core, *job); };
  std::sort(holders.begin(), holders.end(), [&](const JobState* a, const JobState* b) {
    return std::pair(excess(b), static_cast<uint64_t>(a->id)) < std::pair(excess(a), static_cast<uint64_t>(b->id));
  });
  const bool chosen = !core.emptying.windows.empty();
  for (JobState* holder : holders) {
    if (owed == 0) break;
    // A job that itself waits for room keeps what it needs for that.
    if (holder->shortage_pages != 0 && WindowBytes(core, *holder) <= core.windows.window_size()) continue;
    const uint32_t wanted = std::min(owed, MostOf(core, *holder));
    uint32_t given = ReturnEmpty(core, *holder, wanted);
    if (given < wanted && !chosen) given += ChooseWindows(core, *holder, wanted - given);
    owed -= given;
  }
  EmptyWindows(core);
}

}  // namespace tier::tiering
