// See emptying.h.
#include "daemon/tiering/memory/emptying.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/tiering/memory/move_plan.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/ram_moves.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

// The piece found no room in other windows.
void LeaveToEviction(Tables& tables, JobState& job, PieceId id, WindowIndex window) {
  if (UseOf(tables.pieces[id]) == WindowUse::kClean) return tables.hand_over.AddClean(id);
  if (!MayWriteOut(tables, job) || tables.pieces[id].copies == Copies::kTorn) {  // What is torn goes to no SSD.
    tables.windows.Edit(window).passed_over = true;
  } else if (CanStartWrite(tables, job)) {
    (void)StartWrite(tables, id, WriteFor::kHandOver);  // Where it does not begin, the next pass tries again.
  }
}

// Whole blocks of a merge go into the larger window while it has any free: in another small window they would be moved
// again.
uint32_t FirstChoice(const Tables& tables) {
  const bool has_target = tables.merge.emptying() && tables.merge.merge().target != MergeState::kNoTarget;
  return has_target ? tables.windows.FirstBlock(tables.merge.merge().target) : 0;
}

// To other windows. False: it cannot move, or there is no room for it.
bool PlanMove(const Tables& tables, JobState& job, const BlockContent::Part& part, MovePlan* plan) {
  if (tables.ports.copier == nullptr || !IsMovable(tables, tables.pieces[part.piece], part.run)) return false;
  if (const base::PageRun to = job.pool.TryAllocateRun(part.run.pages, FirstChoice(tables))) {
    plan->steps.push_back({.piece = part.piece, .from = part.run, .to = to});
    return true;
  }
  return !part.run.whole_block() && PlanToHoles(tables, job, part, plan);
}

// False: the turn has not so much work left.
bool LookAtBlock(Tables& tables, JobState& job, WindowIndex window, uint32_t number) {
  std::vector<base::PageRun> runs;
  job.pool.ListUsed(number, &runs);
  if (!tables.work.TrySpend(kListBlockCost + static_cast<uint32_t>(runs.size()) * (kLookUpCost + kMoveCost)))
    return false;
  // The largest first: small ones find a hole among what these leave.
  std::ranges::stable_sort(runs, std::ranges::greater{}, &base::PageRun::pages);
  std::optional<CompactionIndex> moves;
  const CompactionCause cause = tables.merge.emptying() ? CompactionCause::kMerge : CompactionCause::kWindow;
  for (const base::PageRun run : runs) {
    const PieceId id = tables.PieceAt(run);
    if (id == kNoPiece) continue;  // A copy that was cancelled still reads it.
    const Piece& piece = tables.pieces[id];
    const WindowUse use = UseOf(piece);
    const bool begun = piece.ram_scattered && piece.activity == Activity::kMoving;  // Another run of it.
    if (use != WindowUse::kClean && use != WindowUse::kDirty && !begun) continue;
    MovePlan plan;
    if (!PlanMove(tables, job, {run, id}, &plan)) {
      if (begun) continue;
      // A merge saves an index: no reason to take a piece out of RAM. The window stays, with its other pieces.
      if (tables.merge.emptying()) {
        tables.windows.Edit(window).passed_over = true;
        StopEmptying(tables, window);
        return true;
      }
      LeaveToEviction(tables, job, id, window);
      continue;
    }
    if (!moves) moves = StartCompaction(tables, job, {.cause = cause, .window = window});
    for (const RamMoveStep& step : plan.steps) StartRamMove(tables, step, *moves);
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

// The first with a run of the piece that has only to be left by what is clean.
std::optional<WindowIndex> WindowToEmpty(const Tables& tables, const Piece& piece) {
  for (const base::PageRun run : tables.RunsOf(piece)) {
    const WindowIndex window = tables.windows.WindowOf(run);
    if (CanEmpty(tables.windows[window])) return window;
  }
  return std::nullopt;
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
  job.windows.StartEmptying(entry.shape.size);
  job.pool.SetClosed(tables.windows.FirstBlock(window), true);
  tables.windows.Rerank(window);
  tables.hand_over.AddWindow(window);
}

void StopEmptying(Tables& tables, WindowIndex window) {
  WindowEntry& entry = tables.windows.Edit(window);
  if (!entry.emptying) return;
  entry.emptying = false;
  JobState& job = tables.jobs.At(entry.job);
  job.windows.EndEmptying(entry.shape.size);
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

void EndPass(Tables& tables) {
  for (const WindowIndex window : tables.hand_over.windows()) StopEmptying(tables, window);
  tables.hand_over.Clear();
}

bool EvictRest(Tables& tables) {
  HandOverState& state = tables.hand_over;
  while (state.any_clean() && tables.work.TrySpend()) {
    const PieceId id = state.TakeClean();
    const std::optional<WindowIndex> window = WindowToEmpty(tables, tables.pieces[id]);
    const uint64_t bytes = tables.pieces[id].ram.size_bytes();
    if (!window || !Evict(tables, id)) continue;
    tables.windows.Edit(*window).left_by = LeftBy::kEviction;
    state.CountEvicted(bytes);
  }
  return !state.any_clean();
}

}  // namespace tier::tiering
