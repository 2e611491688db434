// RAM moves: pieces on their way to another run in RAM, from the decision to the result. Engine thread only.
//
// A piece moves while it is sealed and no session leases it. What comes before its copy is complete cancels the move
// (CancelMove); a client that takes one of the two places away ends the sessions of its job, as in a transfer.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Whether the piece may be moved now: sealed, in RAM, unleased, in no transfer, and read by no copy that was cancelled.
bool IsMovable(const Tables& tables, const Piece& piece);

CompactionIndex StartCompaction(Tables& tables, JobState& job, const CompactionGoal& goal);
// The run stays taken until the compaction ends. REQUIRES: taken from the pool of its job, for no piece.
void KeepFree(Tables& tables, CompactionIndex compaction, base::PageRun run);
// REQUIRES: IsMovable; `to` was taken from the pool of the piece's job and has as many pages.
void StartRamMove(Tables& tables, PieceId id, base::PageRun to, CompactionIndex compaction);
// Takes the results of ended copies, ends compactions without further moves, and wakes who waits for their room.
// Returns whether there were any.
bool TakeRamMoves(Tables& tables);

}  // namespace tier::tiering
