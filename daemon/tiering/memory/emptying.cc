// See emptying.h.
#include "daemon/tiering/memory/emptying.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/ram_moves.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kListCost = 16;  // Units of work to list what lies in a block,
constexpr uint32_t kPieceCost = 9;  // and to look a piece up and move it.

// The piece found no room in other windows.
void LeaveToEviction(Tables& tables, JobState& job, PieceId id, WindowUse use) {
  if (use == WindowUse::kClean) return tables.hand_over.AddClean(id);
  if (!MayWriteOut(tables, job)) {
    tables.windows.Edit(tables.windows.WindowOf(tables.pieces[id].ram)).passed_over = true;
  } else if (CanStartWrite(tables, job)) {
    (void)StartWrite(tables, id, WriteFor::kHandOver);  // Where it does not begin, the next pass tries again.
  }
}

// False: the turn has not so much work left.
bool LookAtBlock(Tables& tables, JobState& job, WindowIndex window, uint32_t number) {
  std::vector<base::PageRun> runs;
  job.pool.ListUsed(number, &runs);
  if (!tables.work.TrySpend(kListCost + static_cast<uint32_t>(runs.size()) * kPieceCost)) return false;
  // The largest first: small ones find a hole among what these leave.
  std::ranges::stable_sort(runs, std::ranges::greater{}, &base::PageRun::pages);
  std::optional<CompactionIndex> moves;
  for (const base::PageRun run : runs) {
    const PieceId id = tables.residents.At(run);
    if (id == kNoPiece) continue;  // A copy that was cancelled still reads it.
    const Piece& piece = tables.pieces[id];
    const WindowUse use = UseOf(piece);
    if (use != WindowUse::kClean && use != WindowUse::kDirty) continue;
    const bool movable = tables.ports.copier != nullptr && IsMovable(tables, piece);
    const base::PageRun to = movable ? job.pool.TryAllocateRun(run.pages) : base::PageRun{};
    if (!to) {
      LeaveToEviction(tables, job, id, use);
      continue;
    }
    if (!moves) moves = StartCompaction(tables, job, {.cause = CompactionCause::kWindow, .window = window});
    StartRamMove(tables, id, to, *moves);
    WindowEntry& entry = tables.windows.Edit(window);
    entry.left_by = std::max(entry.left_by, LeftBy::kMoves);
  }
  return true;
}

bool CanEmpty(const WindowEntry& entry) {
  const bool ready = entry.emptying && entry.condition == WindowCondition::kReady;
  return ready && entry.count(WindowUse::kDirty) == 0 && entry.count(WindowUse::kBusy) == 0 &&
         entry.count(WindowUse::kBound) == 0;
}

}  // namespace

bool MayWriteOut(const Tables& tables, const JobState& job) {
  if (tables.ledger.lends()) return false;
  const bool failing = tables.ledger.host_debt() != 0 ? tables.turn.now() < tables.jobs.write_retry_at(job)
                                                      : job.failures.in_a_row() != 0;
  return !failing && tables.ports.extents.HasRoom(2 * kBlockSize);  // The last block is not for that.
}

void StartEmptying(Tables& tables, WindowIndex window) {
  WindowEntry& entry = tables.windows.Edit(window);
  TIER_CHECK(entry.rank() != WindowOrder::kNone, "window {} cannot be taken", tier::Value(window));
  entry.emptying = true;
  entry.left_by = LeftBy::kItself;
  entry.passed_over = false;
  JobState& job = tables.jobs.At(entry.job);
  job.windows.SetEmptying(true);
  job.pool.SetClosed(tables.windows.FirstBlock(window), true);
  tables.windows.Rerank(window);
  tables.hand_over.AddWindow(window);
}

void StopEmptying(Tables& tables, WindowIndex window) {
  WindowEntry& entry = tables.windows.Edit(window);
  if (!entry.emptying) return;
  entry.emptying = false;
  JobState& job = tables.jobs.At(entry.job);
  job.windows.SetEmptying(false);
  job.pool.SetClosed(tables.windows.FirstBlock(window), false);
  tables.windows.Rerank(window);
  tables.waits.OnRoom(job);
}

void LookThroughWindows(Tables& tables) {
  HandOverState& state = tables.hand_over;
  while (!state.looked()) {
    const WindowIndex window = state.window();
    const WindowEntry& entry = tables.windows[window];
    if (!entry.emptying || entry.count(WindowUse::kBound) != 0) {
      if (!tables.work.TrySpend()) return tables.turn.NoteProgress();
      StopEmptying(tables, window);
      state.NextWindow();
      continue;
    }
    if (tables.ram_moves.pages() >= kRamMovePagesMax) break;  // It goes on when some of them have ended.
    const uint32_t block = tables.windows.FirstBlock(window) + state.block();
    if (!LookAtBlock(tables, tables.jobs.At(entry.job), window, block)) return tables.turn.NoteProgress();
    state.NextBlock(tables.windows.BlockCount(window));
  }
  const bool over = state.emptying() && state.looked() && !state.moving();
  if (over || state.any_moved()) state.SetNextAt(tables.turn.now());
}

bool EvictRest(Tables& tables) {
  HandOverState& state = tables.hand_over;
  while (state.any_clean() && tables.work.TrySpend()) {
    const PieceId id = state.TakeClean();
    const base::PageRun ram = tables.pieces[id].ram;
    if (!ram) continue;
    WindowEntry& entry = tables.windows.Edit(tables.windows.WindowOf(ram));
    if (!CanEmpty(entry) || !Evict(tables, id)) continue;
    entry.left_by = LeftBy::kEviction;
    state.CountEvicted(ram.size_bytes());
  }
  return !state.any_clean();
}

}  // namespace tier::tiering
