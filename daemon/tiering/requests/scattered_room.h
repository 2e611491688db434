// Scattered room: requests that lack a block, or pages side by side, while their job has as many free pages. Moves in
// RAM make the runs (memory/compaction.h), in a stage of the turn of its own, and gather the blocks of requests that
// want them side by side (memory/gathering.h). Engine thread only.
//
// A request that no moves can help is looked at again at once, and is then served as any that lacks room: by eviction,
// by other windows, or not before its deadline.
#pragma once

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

// The request wants its blocks side by side (proto::kFlagContiguous), and some that are in RAM are not.
bool WantsRuns(const Tables& tables, const Ask& ask);
// The request waits for room, and the turn will try to make it.
void WantRun(Tables& tables, Waiter& waiter);
// Plans moves for the requests that want them, as far as the turn's work reaches; the next turn goes on.
void MakeRunsForRequests(Tables& tables);

}  // namespace tier::tiering
