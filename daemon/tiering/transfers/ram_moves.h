// RAM moves: pieces on their way to another run in RAM, from the decision to the result. Engine thread only.
//
// A piece moves while it is sealed and no session leases it. What comes before its copy is complete cancels the move
// (CancelMove); a client that takes one of the two places away ends the sessions of its job, as in a transfer.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Whether a run of the piece may be moved now: it is sealed, unleased, in no transfer, and no copy reads that run.
bool IsMovable(const Tables& tables, const Piece& piece, base::PageRun run);

CompactionIndex StartCompaction(Tables& tables, JobState& job, const CompactionGoal& goal);
// The run stays taken until the compaction ends. REQUIRES: taken from the pool of its job, for no piece.
void KeepFree(Tables& tables, CompactionIndex compaction, base::PageRun run);
// A part of a piece on its way to another place.
struct RamMoveStep {
  PieceId piece = kNoPiece;
  base::PageRun from;  // A run of the piece, or the beginning of one, which becomes a run by itself.
  base::PageRun to;    // Taken from the pool of the piece's job; it has as many pages.
};
// REQUIRES: IsMovable.
void StartRamMove(Tables& tables, const RamMoveStep& step, CompactionIndex compaction);
// Takes the results of ended copies, ends compactions without further moves, and wakes who waits for their room.
// Returns whether there were any.
bool TakeRamMoves(Tables& tables);

}  // namespace tier::tiering
