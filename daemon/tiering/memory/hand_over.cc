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
    if (!job.pool.RegionEmpty(core.windows.FirstBlock(window)) || KnownToOverdueSession(job, window)) continue;
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
    if (dirty != 0 && job.write_backoff != 0) continue;  // Its writes fail: others are to be asked.
    if (KnownToOverdueSession(job, window)) continue;
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

// Windows that a holder is to lose: some of its surplus to those who are owed, and what it borrowed and cannot back.
uint32_t WindowsToLose(const Core& core, const JobState& job) {
  const auto unbacked = static_cast<uint32_t>(core.ledger.UnbackedBy(job.entitlement) / core.windows.window_size());
  return std::max(core.ledger.WindowsToGive(job.entitlement), unbacked);
}

// Since they were chosen promises may have changed, and what their owners hold.
void SparePromised(Core& core) {
  std::unordered_map<const JobState*, uint32_t> taken;
  for (const WindowIndex window : core.emptying.windows) {
    WindowEntry& entry = core.windows[window];
    if (entry.emptying && ++taken[entry.job] > WindowsToLose(core, *entry.job)) entry.emptying = false;
  }
}

// Evicts windows that hold nothing but clean pieces now. The others were written from, and are looked at again.
void ReturnEmptied(Core& core) {
  SparePromised(core);
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

// Gives up to `wanted` windows of the holder: returns empty ones, and chooses others to be emptied where `may_choose`.
uint32_t TakeFrom(Core& core, JobState& holder, uint32_t wanted, bool may_choose) {
  const uint32_t returned = ReturnEmpty(core, holder, wanted);
  if (returned == wanted || !may_choose) return returned;
  return returned + ChooseWindows(core, holder, wanted - returned);
}

}  // namespace

void StopHandOver(Core& core) {
  StopEmptying(core);
  core.ledger.SetAllBacked();
}

void HandOver(Core& core) {
  Ledger& ledger = core.ledger;
  const uint64_t window = core.windows.window_size();
  auto owed = static_cast<uint32_t>((ledger.BytesToAskBack() + window - 1) / window);
  if (owed == 0 && ledger.unbacked_bytes() < window) return StopHandOver(core);
  const bool may_choose = core.emptying.windows.empty();
  ledger.ListHolders(&core.holders);
  for (const JobId id : core.holders) {
    JobState* holder = core.jobs.Find(id);
    TIER_CHECK(holder != nullptr, "job {} holds windows and is gone", static_cast<uint64_t>(id));
    // A job that itself waits for room keeps what it needs for that.
    if (holder->shortage_pages != 0 && ledger.HeldBy(holder->entitlement) <= window) continue;
    const auto unbacked = static_cast<uint32_t>(ledger.UnbackedBy(holder->entitlement) / window);
    const uint32_t wanted = std::max(std::min(owed, ledger.WindowsToGive(holder->entitlement)), unbacked);
    if (wanted != 0) owed -= std::min(owed, TakeFrom(core, *holder, wanted, may_choose));
  }
  EmptyWindows(core);
  // Tried once: what is still unbacked is found again when something of the job has changed.
  if (core.emptying.windows.empty()) ledger.SetAllBacked();
}

}  // namespace tier::tiering
