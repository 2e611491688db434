// See hand_over.h.
#include "daemon/tiering/memory/hand_over.h"

#include <algorithm>

#include "daemon/tiering/memory/emptying.h"
#include "daemon/tiering/memory/lending.h"
#include "daemon/tiering/memory/merging.h"
#include "daemon/tiering/memory/quota_parts.h"
#include "daemon/tiering/memory/window_ownership.h"

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

// Which windows are taken. The host gains nothing by those in huge pages.
enum class Pages : uint8_t { kAny, kSmall };

bool IsWanted(const Tables& tables, WindowIndex window, Pages pages) {
  return pages == Pages::kAny || tables.windows[window].shape.page_size == kPageSize;
}

// What is taken now is for a job that is owed memory within its promise. More than that is not, nor what goes to the
// host, to a job that is served or that wishes, or what has no room on SSD.
AskedFor AskedForNow(const Ledger& ledger) {
  const bool owed = ledger.anybody_owed() && !ledger.serving() && ledger.host_debt() == 0;
  return owed && ledger.BytesToAskBack() != 0 ? AskedFor::kOwed : AskedFor::kOther;
}

void Return(Tables& tables, WindowIndex window, LeftBy how) {
  tables.hand_over.CountReturned(how);
  if (tables.ledger.lends()) tables.hand_over.CountLent(tables.windows.SizeOf(window));
  ReturnWindow(tables, window, AskedForNow(tables.ledger));
}

// Empty windows, the smallest first: one that reaches below the promise goes only where no other is there. False: the
// turn has no work left for more of them, each of which is asked of all sessions of the job.
bool ReturnEmpty(Tables& tables, const JobState& job, const WindowSet& overdue, Pages pages, Taking* taking) {
  const uint32_t end = WindowOrder::kFirstUsed;
  bool over = false;
  tables.windows.order().ForEach(job.index, 0, end, [&](WindowIndex window) {
    if (taking->done()) return false;
    over = taking->taken() != 0 && tables.work.left() < 1 + job.sessions.size();
    if (over) return false;
    tables.work.Charge(1);
    if (overdue.Contains(window) || !IsWanted(tables, window, pages)) return true;
    if (!taking->TryTake(tables.windows.SizeOf(window))) return true;
    Return(tables, window, LeftBy::kItself);
    return true;
  });
  return !over;
}

// Windows of one job that are looked at, whatever work the turn has left.
constexpr uint32_t kSeenAtLeast = 64;

// Chooses windows of one job to be emptied.
class Choice {
 public:
  Choice(Tables& tables, JobState& job, const WindowSet& overdue, Pages pages, Taking* taking)
      : tables_(tables),
        job_(job),
        overdue_(overdue),
        wanted_pages_(pages),
        taking_(taking),
        may_write_(MayWriteOut(tables, job)) {}

  void Choose() {
    const bool may_move = tables_.ports.copier != nullptr;
    // The fewest bytes first, as long as they fit into the other windows. Then what must be evicted: windows that need
    // no write first.
    if (may_move) Look([&](WindowIndex window) { return !tables_.windows[window].passed_over && TakeToMove(window); });
    for (const bool dirty : {false, true}) {
      if (dirty && !may_write_) break;
      // What was found not to move, and is torn, cannot be written either.
      Look([&](WindowIndex window) {
        return HasDirty(window) == dirty && !(dirty && tables_.windows[window].passed_over) && Take(window);
      });
    }
    if (may_move && !chosen_) TryAgain();
  }

 private:
  template <typename TakeIt>
  void Look(TakeIt take) {
    over_ = false;
    tables_.windows.order().ForEach(job_.index, WindowOrder::kFirstUsed, WindowOrder::kRanks, [&](WindowIndex window) {
      if (taking_->done() || !PayForLook()) return false;
      const bool wanted = !overdue_.Contains(window) && IsWanted(tables_, window, wanted_pages_);
      if (wanted) chosen_ = take(window) || chosen_;
      return !over_;
    });
  }
  bool PayForLook() {
    if (++seen_ > kSeenAtLeast) return tables_.work.TrySpend();
    tables_.work.Charge(1);
    return true;
  }
  bool HasDirty(WindowIndex window) const { return WindowOrder::IsDirty(tables_.windows.order().RankOf(window)); }
  bool Take(WindowIndex window) {
    const uint32_t cost = 2 * tables_.windows.BlockCount(window);  // It is closed now, and perhaps opened again.
    over_ = chosen_ && cost > tables_.work.left();
    if (over_ || !taking_->TryTake(tables_.windows.SizeOf(window))) return false;
    tables_.work.Charge(cost);
    StartEmptying(tables_, window);
    return true;
  }
  // What is free in the windows that stay must take all that lies in those chosen: so many pages, of them so many in
  // whole blocks, and the others where slots may lie. What is free in the window itself does not count.
  bool TakeToMove(WindowIndex window) {
    const WindowEntry& entry = tables_.windows[window];
    over_ = pages_ + tables_.windows.grain() / kPageSize > job_.pool.free_pages();
    if (over_) return false;  // Not even the smallest window fits any more.
    const uint64_t used = entry.used_pages();
    const uint64_t in_blocks = entry.pages_of(RamClass::kBlock);
    const uint64_t own = entry.shape.size / kPageSize - used;
    const uint64_t own_for_slots = entry.shape.page_size == kPageSize ? own : 0;
    const base::BlockPool& pool = job_.pool;
    const uint64_t blocks_only = (pool.free_block_count() - pool.free_slot_block_count()) * kPagesPerBlock;
    const bool fits = pages_ + used + own <= pool.free_pages() &&
                      in_blocks_ + in_blocks <= pool.free_block_count() * kPagesPerBlock &&
                      pages_ - in_blocks_ + used - in_blocks + own_for_slots <= pool.free_pages() - blocks_only;
    if (!fits || !Take(window)) return false;
    pages_ += used;
    in_blocks_ += in_blocks;
    return true;
  }
  // All that could be chosen was tried, and had a piece that found no room: things may have changed.
  void TryAgain() {
    Look([&](WindowIndex window) {
      tables_.windows.Edit(window).passed_over = false;
      return false;
    });
  }

  Tables& tables_;
  JobState& job_;
  const WindowSet& overdue_;
  Pages wanted_pages_;
  Taking* taking_;
  bool may_write_;
  bool chosen_ = false;  // Any.
  bool over_ = false;    // No other window can be taken in this way, or for lack of work in the turn.
  uint32_t seen_ = 0;
  uint64_t pages_ = 0;      // In windows chosen, that are to move …
  uint64_t in_blocks_ = 0;  // … and those of them in whole blocks.
};

// The window was emptied. Since it was chosen, promises may have changed, and what their owners hold. (A claim may be
// smaller for a moment, while windows that have come are used: what is empty goes all the same.)
void ReturnEmptied(Tables& tables, WindowIndex window) {
  const WindowEntry& entry = tables.windows[window];
  const JobState& job = tables.jobs.At(entry.job);
  if (!job.pool.RegionEmpty(tables.windows.FirstBlock(window))) return;
  Taking taking(tables, job, UINT64_MAX);
  if (!taking.TryTake(entry.shape.size)) return;
  Return(tables, window, entry.left_by);
}

// Windows that the last moves have left go at once.
void ReturnMoved(Tables& tables) {
  for (const WindowIndex window : tables.hand_over.TakeMoved()) {
    if (tables.windows[window].emptying) ReturnEmptied(tables, window);
  }
}

// Ends the pass if it is over.
void FinishPass(Tables& tables) {
  const HandOverState& state = tables.hand_over;
  if (!state.emptying() || !state.looked() || state.moving() || !EvictRest(tables)) return;
  tables.work.Charge(static_cast<uint32_t>(state.windows().size()));
  for (const WindowIndex window : state.windows()) {
    if (tables.windows[window].emptying) ReturnEmptied(tables, window);
  }
  EndPass(tables);
}

struct Search {
  Pages pages = Pages::kAny;
  bool empty = true;   // Empty windows are returned …
  bool others = true;  // … and others chosen to be emptied.
};

// Takes so many bytes of windows from the holder, or more by a part of a window. Returns how many.
uint64_t TakeFrom(Tables& tables, JobState& holder, uint64_t wanted, const Search& search) {
  Taking taking(tables, holder, wanted);
  const WindowSet overdue = WindowsOfOverdueSessions(holder);
  const bool seen = !search.empty || ReturnEmpty(tables, holder, overdue, search.pages, &taking);
  if (seen && !taking.done() && search.others) Choice(tables, holder, overdue, search.pages, &taking).Choose();
  return taking.taken();
}

// Calls `take` for each job that may be asked, the one that has most beyond what it keeps first.
template <typename Take>
void ForEachHolder(Tables& tables, Take take) {
  tables.ledger.ListHolders(&tables.scratch.holders);
  for (const JobId id : tables.scratch.holders) {
    JobState* holder = tables.jobs.Find(id);
    TIER_CHECK(holder != nullptr, "job {} holds windows and is gone", static_cast<uint64_t>(id));
    // A job that itself waits for room keeps what it needs for that.
    const bool needs_it = tables.waits.shortage_pages(*holder) != 0;
    if (needs_it && tables.ledger.HeldBy(holder->entitlement) <= tables.windows.grain()) continue;
    take(*holder);
  }
}

// True: some windows were taken, or are being emptied.
bool PayDebt(Tables& tables, bool may_choose) {
  Ledger& ledger = tables.ledger;
  uint64_t wanted = std::min({ledger.BytesToAskBack(), ledger.host_debt(), kHostBatchBytes});
  const uint64_t wanted_first = wanted;
  const auto take = [&](const Search& search) {
    ForEachHolder(tables, [&](JobState& holder) {
      if (wanted != 0) wanted -= std::min(wanted, TakeFrom(tables, holder, wanted, search));
    });
  };
  ledger.SetDebtDepth(DebtDepth::kAll);
  take({.pages = Pages::kSmall, .others = false});
  for (const DebtDepth depth : {DebtDepth::kSurplus, DebtDepth::kPromise, DebtDepth::kAll}) {
    if (wanted == 0 || !may_choose) break;
    ledger.SetDebtDepth(depth);
    take({.pages = Pages::kSmall, .empty = false});
  }
  return wanted != wanted_first || tables.hand_over.emptying();
}

// `owed`: to jobs, or lent to one. What is not backed by room on SSD goes too, and what is beyond a part of a quota.
void TakeForJobs(Tables& tables, uint64_t owed) {
  if (owed == 0 && tables.ledger.unbacked_bytes() == 0) return;
  const uint64_t owed_first = owed;
  const bool may_choose = !tables.hand_over.emptying();
  tables.ledger.SetDebtDepth(DebtDepth::kSurplus);
  ForEachHolder(tables, [&](JobState& holder) {
    const uint64_t wanted = std::max(owed, tables.ledger.UnbackedBy(holder.entitlement));
    if (wanted != 0) owed -= std::min(owed, TakeFrom(tables, holder, wanted, {.others = may_choose}));
  });
  const bool in_vain = owed_first != 0 && owed == owed_first && !tables.hand_over.emptying();
  if (tables.ledger.lends() && in_vain) tables.ledger.RefuseWishes(tables.turn.now() + kLendRetryInterval);
}

// No job is owed anything: windows that were chosen to be emptied stay. A merge goes on.
void StopHandOver(Tables& tables) {
  if (!tables.merge.emptying()) EndPass(tables);
  tables.ledger.SetAllBacked();
}

}  // namespace

base::TimePoint HandOver(Tables& tables) {
  Ledger& ledger = tables.ledger;
  if (!ledger.ExpireWish(tables.turn.now())) FindIdleJobs(tables);
  AskWithinUsers(tables);
  ReturnMoved(tables);
  const base::TimePoint soon = tables.turn.now() + kHandOverInterval;
  const auto nothing_wanted = [&] {
    return ledger.BytesToAskBack() == 0 && ledger.unbacked_bytes() < tables.windows.grain();
  };
  if (ledger.host_debt() != 0) ledger.SetDebtDepth(DebtDepth::kAll);  // What was emptied for it goes.
  if (!nothing_wanted()) {
    StopMerge(tables);
    FinishPass(tables);
  }
  if (nothing_wanted()) {
    StopHandOver(tables);
    return soon;
  }
  const bool may_choose = !tables.hand_over.emptying();
  // No job grows while the host has a debt: what jobs are owed comes after that.
  const bool in_debt = ledger.host_debt() != 0;
  const uint64_t owed = in_debt ? 0 : ledger.BytesToAskBack();
  const bool found = !in_debt || PayDebt(tables, may_choose);
  TakeForJobs(tables, owed);
  tables.turn.NoteProgress(may_choose && tables.hand_over.emptying());  // The next turn looks at what was chosen.
  // Tried once: what is still unbacked is found again when something of the job has changed.
  if (!tables.hand_over.emptying()) ledger.SetAllBacked();
  return found ? soon : tables.turn.now() + kHostRetryInterval;
}

}  // namespace tier::tiering
