// See scattered_room.h.
#include "daemon/tiering/requests/scattered_room.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/tiering/memory/compaction.h"
#include "daemon/tiering/memory/gathering.h"
#include "daemon/tiering/requests/need.h"

namespace tier::tiering {
namespace {

// Calls visit(pages) for each piece of the ask that has no room, until it returns false.
template <typename Visit>
void ForEachMissing(const Tables& tables, const Ask& ask, Visit visit) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (Missing(ask, item, tensor, tables.PieceOf(tensor, k)) && !visit(PagesOfPiece(tensor, k))) return;
    }
  }
}

// What came of a request's pieces, one after the other.
struct Made {
  bool started = false;
  Compacted last = Compacted::kStarted;  // Of the first piece for which no room could be made.
  uint32_t pages = 0;                    // Of that piece.
};

// What is free counts first for the pieces that come first: that is how they will be given it.
Made MakeRuns(Tables& tables, JobState& job, const Ask& ask, SparseSearch* search) {
  Made made;
  std::vector<base::PageRun> held;
  ForEachMissing(tables, ask, [&](uint32_t pages) {
    if (pages != kPagesPerBlock && job.pool.TryAllocateRuns(pages, kRamRunsMax, &held)) return true;
    const base::PageRun block = pages == kPagesPerBlock ? job.pool.TryAllocateRun(pages) : base::PageRun{};
    if (block) {
      held.push_back(block);
      return true;
    }
    made.last = Compact(tables, job, pages, search);
    made.started = made.started || made.last == Compacted::kStarted;
    made.pages = pages;
    return made.last == Compacted::kStarted;
  });
  for (const base::PageRun run : held) job.pool.Free(run);
  tables.work.Charge(static_cast<uint32_t>(held.size()));
  return made;
}

void GiveUp(Tables& tables, const Waiter& waiter) {
  tables.waits.ContinueNextTurn(waiter.number);
  tables.turn.NoteProgress();
}

// As MakeRunsFor, for a request that could be granted as it is. It is looked at again when moves have ended.
bool GatherFor(Tables& tables, JobState& job, Waiter& waiter, const Ask& ask) {
  if (tables.work.exhausted()) return false;
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  const Compacted outcome = job.moves.any() ? Compacted::kLater : GatherBlocks(tables, job, ask.items);
  tables.work.Charge(waiter.work_cost);  // Behind the moves: a large request would leave no work for them, in any turn.
  if (outcome == Compacted::kNextTurn) return false;
  if (outcome == Compacted::kStarted) ++wait.gathers;
  if (outcome == Compacted::kNo) {
    wait.as_it_is = true;
    GiveUp(tables, waiter);
  } else {
    tables.ram_moves.AwaitEnd({.job = job.id, .waiter = waiter.number});
  }
  return true;
}

// False: it is to be tried again in the next turn.
bool MakeRunsFor(Tables& tables, JobState& job, Waiter& waiter) {
  const Ask ask = AskOf(tables, waiter);
  const bool alive = std::ranges::all_of(ask.items, [&](const WaitItem& item) { return tables.Alive(item.tensor); });
  if (!alive) {  // What it waits at may be another of them than the one that is gone.
    GiveUp(tables, waiter);
    return true;
  }
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  if (wait.awaits_runs) return GatherFor(tables, job, waiter, ask);
  SparseSearch search = std::exchange(wait.search, {});
  if (job.moves.any()) return true;  // It is woken when they end.
  const uint32_t passed = search.passed;
  Made made = MakeRuns(tables, job, ask, &search);
  wait.search.holes = search.holes;
  if (made.started) return true;
  if (made.last == Compacted::kNo) {
    made.last = CompactIntoFreeBlock(tables, job, made.pages);
    // The next turn has more work for this only where blocks were looked at in this one before.
    if (made.last == Compacted::kNextTurn && search.passed == passed) made.last = Compacted::kNo;
  }
  if (made.last == Compacted::kNextTurn) {
    wait.search = search;
    return false;
  }
  const bool there_is_room = made.pages == 0;  // Something came free since.
  if (made.last != Compacted::kNo && !there_is_room) return true;
  wait.not_scattered = true;
  GiveUp(tables, waiter);
  return true;
}

}  // namespace

bool WantsRuns(const Tables& tables, const Ask& ask) {
  const bool asked = ask.op == proto::Op::kAcquire && (ask.flags & proto::kFlagContiguous) != 0;
  const bool may_move = (ask.flags & proto::kFlagNoWait) == 0 && tables.ports.copier != nullptr;
  return asked && may_move && LieScattered(tables, ask.items);
}

void WantRun(Tables& tables, Waiter& waiter) {
  waiter.job->moves.Want();
  tables.ram_moves.Want({.job = waiter.job->id, .waiter = waiter.number});
}

void MakeRunsForRequests(Tables& tables) {
  bool exhausted = false;
  for (const RamMoveTable::Wanted& wanted : tables.ram_moves.TakeWanted()) {
    JobState* const job = tables.jobs.Find(wanted.job);
    Waiter* const waiter = tables.waits.Find(wanted.waiter);
    const bool waits = job != nullptr && waiter != nullptr;
    exhausted = exhausted || (waits && !MakeRunsFor(tables, *job, *waiter));
    if (exhausted && waits) {
      tables.ram_moves.Want(wanted);
    } else if (job != nullptr) {
      job->moves.EndWant();
    }
  }
  tables.turn.NoteProgress(exhausted);
}

}  // namespace tier::tiering
