// Emptying: what lies in windows that are to go to another job leaves them. Engine thread only.
//
// Pieces move to free pages of the job's other windows as far as these reach (transfers/ram_moves.h): that costs a copy
// and no I/O, and works without SSD. What finds no room there is evicted; dirty pieces are written out first, and go
// in a later pass. These writes do not wait for the budget of writes (tables/write_budget.h): memory that a job is
// promised, or that the host is short of, would come hours later. Nothing new is placed in a window that is being
// emptied, so no piece moves twice.
//
// A lease in such a window, or a request that waits for one of its pieces, keeps it for its job: it is opened again.
//
// Work: one look at each block of the windows chosen, in the stage of the turn that plans moves, as far as its units
// and the bytes that may be in flight reach.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Pieces of the job can be written out now, as far as is known. What jobs are owed is better taken from others, once
// writes have failed; the host asks all jobs, and tries again. For a wish nothing is written.
bool MayWriteOut(const Tables& tables, const JobState& job);
// The window is being emptied from now on: it is closed in the pool of its job. REQUIRES: it can be taken
// (WindowEntry::rank).
void StartEmptying(Tables& tables, WindowIndex window);
// Its job keeps it. It need not be emptying.
void StopEmptying(Tables& tables, WindowIndex window);
// Looks at the windows of the pass, as far as the turn's work reaches: starts moves, and writes of what cannot move.
void LookThroughWindows(Tables& tables);
// The pass ends, and windows that are still being emptied stay with their jobs.
void EndPass(Tables& tables);
// All were looked at, and no move is under way: evicts clean pieces of windows that hold nothing else. False: the
// turn's work did not reach all of them.
bool EvictRest(Tables& tables);

}  // namespace tier::tiering
