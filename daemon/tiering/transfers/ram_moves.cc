// See ram_moves.h.
#include "daemon/tiering/transfers/ram_moves.h"

#include <algorithm>
#include <vector>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

void GiveBack(Tables& tables, JobState& job, base::PageRun run) {
  job.pool.Free(run);
  RemoveMoveRun(tables, job, run);
}

// The copy is complete, and nothing came before it.
void Switch(Tables& tables, const RamMove& move) {
  JobState& job = tables.jobs.At(move.job);
  RemoveMoveRun(tables, job, move.to);  // It is the piece's now.
  const base::PageRun from = move.from;
  SwitchRam(tables, move.piece, from, move.to);
  AddMoveRun(tables, job, from);  // It goes back with the rest of the region.
  tables.ram_moves.Edit(move.compaction).kept.push_back(from);
  const Piece& piece = tables.pieces[move.piece];
  if (piece.ram_scattered) tables.scattered.EndMove(piece.ram);
  const bool all = !piece.ram_scattered || tables.scattered.moves(piece.ram) == 0;
  if (all) SetState(tables, move.piece, {piece.copies, Activity::kNone});
  CompactionFigures& figures = tables.ram_moves.EditFigures(tables.ram_moves[move.compaction].goal.cause);
  ++figures.moves;
  figures.bytes += from.size_bytes();
  tables.jobs.Edit(job).counters.moved_bytes += from.size_bytes();
}

// The bytes of the piece are gone.
void LoseSource(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  if (piece.copies == Copies::kTorn) return;  // What its writer left is worth no less now.
  if (piece.copies == Copies::kRamSsd) return RevertToSsd(tables, id);
  const TensorIndex tensor = piece.tensor;
  SetState(tables, id, {Copies::kTorn, Activity::kNone});
  if (!tables.tensors[tensor].has(kDetached)) AddTear(tables, tensor);
}

void Finish(Tables& tables, const RamMove& move, memory::CopyOutcome outcome) {
  JobState& job = tables.jobs.At(move.job);
  const bool moves = move.piece != kNoPiece;
  if (moves && outcome == memory::CopyOutcome::kDone) return Switch(tables, move);
  GiveBack(tables, job, move.to);
  if (move.keeps_source) GiveBack(tables, job, move.from);
  if (outcome == memory::CopyOutcome::kDone) return;
  AddWindowFault(tables, job, move.piece);
  if (!moves) return;
  ++tables.ram_moves.Edit(move.compaction).cancelled;
  CancelMove(tables, move.piece);  // Its other runs stay as well.
  if (outcome == memory::CopyOutcome::kSourceFault) LoseSource(tables, move.piece);
}

void EndCompaction(Tables& tables, CompactionIndex index) {
  const Compaction& compaction = tables.ram_moves[index];
  const CompactionGoal goal = compaction.goal;
  JobState& job = tables.jobs.At(compaction.job);
  job.moves.EndCompaction(goal.pages);
  if (EmptiesWindow(goal.cause)) {
    tables.hand_over.EndMoves(goal.window);
  } else if (goal.cause != CompactionCause::kRun) {
    job.moves.NoteOutcome(compaction.cancelled != 0);
  }
  for (const base::PageRun run : tables.ram_moves.RemoveCompaction(index)) GiveBack(tables, job, run);
  tables.waits.OnRoom(job);
}

}  // namespace

bool IsMovable(const Tables& tables, const Piece& piece, base::PageRun run) {
  const bool final_bytes =
      piece.copies == Copies::kRam || piece.copies == Copies::kRamSsd || piece.copies == Copies::kTorn;
  const bool idle = piece.activity == Activity::kNone || (piece.ram_scattered && piece.activity == Activity::kMoving);
  return final_bytes && idle && piece.read_leases == 0 && !tables.tensors[piece.tensor].has(kDetached) &&
         !tables.ram_moves.Reads(run);
}

CompactionIndex StartCompaction(Tables& tables, JobState& job, const CompactionGoal& goal) {
  job.moves.StartCompaction(goal.pages);
  if (EmptiesWindow(goal.cause)) tables.hand_over.StartMoves();
  return tables.ram_moves.AddCompaction(job.index, goal);
}

void KeepFree(Tables& tables, CompactionIndex compaction, base::PageRun run) {
  AddMoveRun(tables, tables.jobs.At(tables.ram_moves[compaction].job), run);
  tables.ram_moves.Edit(compaction).kept.push_back(run);
}

void StartRamMove(Tables& tables, const RamMoveStep& step, CompactionIndex compaction) {
  const Piece& piece = tables.pieces[step.piece];
  TIER_CHECK(IsMovable(tables, piece, step.from), "piece {} is {}", Value(step.piece), ActivityName(piece.activity));
  const auto begins = [&](base::PageRun run) { return run.block == step.from.block && run.page == step.from.page; };
  const auto runs = tables.RunsOf(piece);
  const auto run = std::ranges::find_if(runs, begins);
  TIER_CHECK(run != runs.end() && run->pages >= step.from.pages && step.from.pages == step.to.pages,
             "piece {} has no {} pages in block {} page {}", Value(step.piece), step.to.pages, step.from.block,
             step.from.page);
  if (run->pages != step.from.pages) SplitRun(tables, step.piece, *run, step.from.pages);
  JobState& job = tables.JobOf(piece);
  const RamMoveIndex index = tables.ram_moves.Add(
      {.piece = step.piece, .from = step.from, .to = step.to, .job = job.index, .compaction = compaction});
  AddMoveRun(tables, job, step.to);
  if (piece.ram_scattered) tables.scattered.AddMove(piece.ram);
  if (piece.activity != Activity::kMoving) SetState(tables, step.piece, {piece.copies, Activity::kMoving});
  tables.ports.copier->Start({.cookie = static_cast<uint64_t>(index),
                              .from = tables.windows.AddressOf(step.from),
                              .to = tables.windows.AddressOf(step.to),
                              .length = static_cast<uint32_t>(step.to.size_bytes())});
  tables.turn.NoteProgress();
}

bool TakeRamMoves(Tables& tables) {
  std::vector<memory::PageCopyResult>& results = tables.scratch.copied;
  results.clear();
  tables.ports.copier->Poll(&results);
  for (const memory::PageCopyResult& result : results) {
    const RamMove move = tables.ram_moves.Remove(RamMoveIndex{static_cast<uint32_t>(result.cookie)});
    Finish(tables, move, result.outcome);
    if (tables.ram_moves[move.compaction].moves == 0) EndCompaction(tables, move.compaction);
  }
  if (results.empty()) return false;
  for (const JobId id : tables.ram_moves.TakeForCopies()) {
    if (const JobState* job = tables.jobs.Find(id)) tables.waits.OnRoom(*job);
  }
  for (const RamMoveTable::Wanted& request : tables.ram_moves.TakeForEnd()) {
    const JobState* const job = tables.jobs.Find(request.job);
    if (job == nullptr || tables.waits.Find(request.waiter) == nullptr) continue;
    if (job->moves.any()) {
      tables.ram_moves.AwaitEnd(request);
    } else if (!tables.waits.ready(request.waiter)) {
      tables.waits.ContinueNextTurn(request.waiter);
    }
  }
  return true;
}

}  // namespace tier::tiering
