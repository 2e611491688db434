// See hand_over.h.
#include "daemon/tiering/memory/hand_over.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

// What one holder is to lose, of what it can give at the beginning. Bytes.
class Taking {
 public:
  Taking(const Core& core, const JobState& holder, uint64_t wanted)
      : ledger_(core.ledger),
        holder_(holder.entitlement),
        wanted_(wanted),
        given_most_(ledger_.BytesToGive(holder.entitlement)) {}
  bool done() const { return taken_ >= wanted_; }
  uint64_t taken() const { return taken_; }
  bool TryTake(uint64_t window_bytes) {
    const bool within = taken_ + window_bytes <= given_most_;
    if (done() || !(within || (taken_ == 0 && ledger_.MayGiveBelow(holder_, window_bytes)))) return false;
    taken_ += window_bytes;
    return true;
  }

 private:
  const Ledger& ledger_;
  EntitlementSlot holder_;
  uint64_t wanted_;
  uint64_t given_most_;
  uint64_t taken_ = 0;
};

// The smallest first: a window that reaches below the promise goes only where no other is there.
void ReturnEmpty(Core& core, JobState& job, Taking* taking) {
  std::vector<WindowIndex> empty;
  for (const WindowIndex window : job.windows) {
    if (job.pool.RegionEmpty(core.windows.FirstBlock(window)) && !KnownToOverdueSession(job, window)) {
      empty.push_back(window);
    }
  }
  std::stable_sort(empty.begin(), empty.end(),
                   [&](WindowIndex a, WindowIndex b) { return core.windows.SizeOf(a) < core.windows.SizeOf(b); });
  for (const WindowIndex window : empty) {
    if (taking->TryTake(core.windows.SizeOf(window))) ReturnWindow(core, window);
  }
}

// Chooses windows that can be emptied, fewest dirty pieces first.
void ChooseWindows(Core& core, const JobState& job, Taking* taking) {
  std::vector<std::tuple<uint32_t, uint64_t, WindowIndex>> candidates;  // By dirty pieces, then by size.
  for (const WindowIndex window : job.windows) {
    const WindowEntry& entry = core.windows[window];
    TIER_CHECK(entry.condition == WindowCondition::kReady && !entry.emptying, "window {}", tier::Value(window));
    const uint32_t dirty = entry.count(WindowUse::kDirty);
    if (entry.count(WindowUse::kBound) != 0 || dirty + entry.count(WindowUse::kClean) == 0) continue;
    if (dirty != 0 && job.write_backoff != 0) continue;  // Its writes fail: others are to be asked.
    if (KnownToOverdueSession(job, window)) continue;
    candidates.emplace_back(dirty, entry.shape.size, window);
  }
  std::sort(candidates.begin(), candidates.end());
  for (const auto& [dirty, size, window] : candidates) {
    if (!taking->TryTake(size)) continue;
    core.windows[window].emptying = true;
    core.emptying.windows.push_back(window);
  }
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
  for (; emptying.cursor != capacity && core.work.TrySpend(); ++emptying.cursor) {
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

// Since they were chosen promises may have changed, and what their owners hold.
void SparePromised(Core& core) {
  std::unordered_map<const JobState*, Taking> takings;
  for (const WindowIndex window : core.emptying.windows) {
    WindowEntry& entry = core.windows[window];
    if (!entry.emptying) continue;
    Taking& taking = takings.try_emplace(entry.job, core, *entry.job, UINT64_MAX).first->second;
    entry.emptying = taking.TryTake(entry.shape.size);
  }
}

// Evicts windows that hold nothing but clean pieces now. The others were written from, and are looked at again. False:
// the turn did not reach all pieces.
bool ReturnEmptied(Core& core) {
  SparePromised(core);
  std::vector<PieceId>& pieces = core.emptying.pieces;
  for (; !pieces.empty() && core.work.TrySpend(); pieces.pop_back()) {
    const Piece& piece = core.pieces[pieces.back()];
    if (piece.ram && CanEmpty(core.windows[core.windows.WindowOf(piece.ram)])) Evict(core, pieces.back());
  }
  if (!pieces.empty()) return false;
  for (const WindowIndex window : core.emptying.windows) {
    const WindowEntry& entry = core.windows[window];
    if (!CanEmpty(entry) || !entry.job->pool.RegionEmpty(core.windows.FirstBlock(window))) continue;
    ReturnWindow(core, window);
  }
  return true;
}

void EmptyWindows(Core& core) {
  if (core.emptying.windows.empty() || !LookForPieces(core)) return;
  if (ReturnEmptied(core)) StopEmptying(core);
}

// Takes so many bytes of windows from the holder, or more by a part of a window: returns empty ones, and chooses others
// to be emptied where `may_choose`. Returns how many.
uint64_t TakeFrom(Core& core, JobState& holder, uint64_t wanted, bool may_choose) {
  Taking taking(core, holder, wanted);
  ReturnEmpty(core, holder, &taking);
  if (!taking.done() && may_choose) ChooseWindows(core, holder, &taking);
  return taking.taken();
}

}  // namespace

void StopHandOver(Core& core) {
  StopEmptying(core);
  core.ledger.SetAllBacked();
}

void HandOver(Core& core) {
  Ledger& ledger = core.ledger;
  const uint64_t smallest = core.windows.window_size(WindowKind::kSlot);
  uint64_t owed = ledger.BytesToAskBack();
  if (owed == 0 && ledger.unbacked_bytes() < smallest) return StopHandOver(core);
  const bool may_choose = core.emptying.windows.empty();
  ledger.ListHolders(&core.holders);
  for (const JobId id : core.holders) {
    JobState* holder = core.jobs.Find(id);
    TIER_CHECK(holder != nullptr, "job {} holds windows and is gone", static_cast<uint64_t>(id));
    // A job that itself waits for room keeps what it needs for that.
    if (holder->shortage_pages != 0 && ledger.HeldBy(holder->entitlement) <= smallest) continue;
    const uint64_t wanted = std::max(owed, ledger.UnbackedBy(holder->entitlement));
    if (wanted != 0) owed -= std::min(owed, TakeFrom(core, *holder, wanted, may_choose));
  }
  EmptyWindows(core);
  // Tried once: what is still unbacked is found again when something of the job has changed.
  if (core.emptying.windows.empty()) ledger.SetAllBacked();
}

}  // namespace tier::tiering
