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
  Taking(const Tables& tables, const JobState& holder, uint64_t wanted)
      : ledger_(tables.ledger),
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
  EntitlementIndex holder_;
  uint64_t wanted_;
  uint64_t given_most_;
  uint64_t taken_ = 0;
};

// The smallest first: a window that reaches below the promise goes only where no other is there.
void ReturnEmpty(Tables& tables, JobState& job, const WindowSet& overdue, Taking* taking) {
  std::vector<WindowIndex> empty;
  for (const WindowIndex window : job.windows.ready()) {
    if (job.pool.RegionEmpty(tables.windows.FirstBlock(window)) && !overdue.Contains(window)) {
      empty.push_back(window);
    }
  }
  std::stable_sort(empty.begin(), empty.end(),
                   [&](WindowIndex a, WindowIndex b) { return tables.windows.SizeOf(a) < tables.windows.SizeOf(b); });
  for (const WindowIndex window : empty) {
    if (taking->TryTake(tables.windows.SizeOf(window))) ReturnWindow(tables, window);
  }
}

// Chooses windows that can be emptied, fewest dirty pieces first.
void ChooseWindows(Tables& tables, const JobState& job, const WindowSet& overdue, Taking* taking) {
  std::vector<std::tuple<uint32_t, uint64_t, WindowIndex>> candidates;  // By dirty pieces, then by size.
  for (const WindowIndex window : job.windows.ready()) {
    const WindowEntry& entry = tables.windows[window];
    TIER_CHECK(entry.condition == WindowCondition::kReady && !entry.emptying, "window {}", tier::Value(window));
    const uint32_t dirty = entry.count(WindowUse::kDirty);
    if (entry.count(WindowUse::kBound) != 0 || dirty + entry.count(WindowUse::kClean) == 0) continue;
    // Its writes fail, or SSD devices have no room beside the last block: others are to be asked.
    if (dirty != 0 && (job.failures.in_a_row() != 0 || !tables.ports.extents.HasRoom(2 * kBlockSize))) continue;
    if (overdue.Contains(window)) continue;
    candidates.emplace_back(dirty, entry.shape.size, window);
  }
  std::sort(candidates.begin(), candidates.end());
  for (const auto& [dirty, size, window] : candidates) {
    if (!taking->TryTake(size)) continue;
    tables.windows.Edit(window).emptying = true;
    tables.hand_over.AddWindow(window);
  }
}

void StopEmptying(Tables& tables) {
  for (const WindowIndex window : tables.hand_over.windows()) tables.windows.Edit(window).emptying = false;
  tables.hand_over.Clear();
}

// Notes what is clean in the chosen windows, and starts the writes that make the rest so. True: every piece was seen.
bool LookForPieces(Tables& tables) {
  HandOverState& state = tables.hand_over;
  for (PieceId id = state.Next(tables.pieces); id != kNoPiece; id = state.Next(tables.pieces)) {
    if (!tables.work.TrySpend()) return false;
    state.NoteLookedAt(id);
    const Piece& piece = tables.pieces[id];
    if (!piece.ram || !tables.windows[tables.windows.WindowOf(piece.ram)].emptying) continue;
    const WindowUse use = UseOf(piece);
    JobState& job = tables.JobOf(piece);
    if (use == WindowUse::kClean) state.AddClean(id);
    if (use == WindowUse::kDirty && CanStartWrite(tables, job)) StartWrite(tables, id, WriteFor::kAhead);
  }
  return true;
}

bool CanEmpty(const WindowEntry& entry) {
  const bool ready = entry.emptying && entry.condition == WindowCondition::kReady;
  return ready && entry.count(WindowUse::kDirty) == 0 && entry.count(WindowUse::kBound) == 0;
}

// Since they were chosen promises may have changed, and what their owners hold.
void SparePromised(Tables& tables) {
  std::unordered_map<JobIndex, Taking> takings;
  for (const WindowIndex window : tables.hand_over.windows()) {
    WindowEntry& entry = tables.windows.Edit(window);
    if (!entry.emptying) continue;
    Taking& taking = takings.try_emplace(entry.job, tables, tables.jobs.At(entry.job), UINT64_MAX).first->second;
    entry.emptying = taking.TryTake(entry.shape.size);
  }
}

// Evicts windows that hold nothing but clean pieces now. The others were written from, and are looked at again. False:
// the turn did not reach all pieces.
bool ReturnEmptied(Tables& tables) {
  SparePromised(tables);
  while (tables.hand_over.any_clean() && tables.work.TrySpend()) {
    const PieceId id = tables.hand_over.TakeClean();
    const Piece& piece = tables.pieces[id];
    if (piece.ram && CanEmpty(tables.windows[tables.windows.WindowOf(piece.ram)])) (void)Evict(tables, id);
  }
  if (tables.hand_over.any_clean()) return false;
  for (const WindowIndex window : tables.hand_over.windows()) {
    const WindowEntry& entry = tables.windows[window];
    if (!CanEmpty(entry) || !tables.jobs.At(entry.job).pool.RegionEmpty(tables.windows.FirstBlock(window))) continue;
    ReturnWindow(tables, window);
  }
  return true;
}

void EmptyWindows(Tables& tables) {
  if (!tables.hand_over.emptying() || !LookForPieces(tables)) return;
  if (ReturnEmptied(tables)) StopEmptying(tables);
}

// Takes so many bytes of windows from the holder, or more by a part of a window: returns empty ones, and chooses others
// to be emptied where `may_choose`. Returns how many.
uint64_t TakeFrom(Tables& tables, JobState& holder, uint64_t wanted, bool may_choose) {
  Taking taking(tables, holder, wanted);
  const WindowSet overdue = WindowsOfOverdueSessions(holder);
  ReturnEmpty(tables, holder, overdue, &taking);
  if (!taking.done() && may_choose) ChooseWindows(tables, holder, overdue, &taking);
  return taking.taken();
}

// No job is owed anything: windows that were chosen to be emptied stay.
void StopHandOver(Tables& tables) {
  StopEmptying(tables);
  tables.ledger.SetAllBacked();
}

}  // namespace

void HandOver(Tables& tables) {
  Ledger& ledger = tables.ledger;
  const uint64_t smallest = tables.windows.window_size(WindowKind::kSlot);
  uint64_t owed = ledger.BytesToAskBack();
  if (owed == 0 && ledger.unbacked_bytes() < smallest) return StopHandOver(tables);
  const bool may_choose = !tables.hand_over.emptying();
  ledger.ListHolders(&tables.scratch.holders);
  for (const JobId id : tables.scratch.holders) {
    JobState* holder = tables.jobs.Find(id);
    TIER_CHECK(holder != nullptr, "job {} holds windows and is gone", static_cast<uint64_t>(id));
    // A job that itself waits for room keeps what it needs for that.
    if (tables.waits.shortage_pages(*holder) != 0 && ledger.HeldBy(holder->entitlement) <= smallest) continue;
    const uint64_t wanted = std::max(owed, ledger.UnbackedBy(holder->entitlement));
    if (wanted != 0) owed -= std::min(owed, TakeFrom(tables, *holder, wanted, may_choose));
  }
  EmptyWindows(tables);
  // Tried once: what is still unbacked is found again when something of the job has changed.
  if (!tables.hand_over.emptying()) ledger.SetAllBacked();
}

}  // namespace tier::tiering
