// Kept windows: what was taken from a job without an answer and its processes still have: the windows of one that is
// stopped, or that keeps them, or whose session was ended. Engine thread only.
//
// They are empty, and the next owner has other memory. But a process may have pinned some of theirs: that leaves the
// file when it is punched, cannot be counted, and stays with the process. So such a window counts as held by its job,
// whole, until its process unmaps it or ends. A session that fills one again is ended. A process that keeps one for
// another EngineOptions::reclaim_deadline is told of, once for each job, and killed where EngineOptions::kills_keepers
// says so and the window was asked back for a job that was owed memory within its promise: not for a wish, the host or
// what its own job did not need. What is left of a job that is gone counts for no job; for that it is killed while some
// job has been owed memory for a whole deadline.
//
// Work: with each look at the files of such windows, one a second or so: each of them once.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Looks of which a session fills the window again until it is ended. Once is what a process does that was stopped while
// it mapped the window.
inline constexpr uint32_t kRefillsMax = 2;

// Takes over what a look has found. Once a turn.
void CheckKeptWindows(Tables& tables);

}  // namespace tier::tiering
