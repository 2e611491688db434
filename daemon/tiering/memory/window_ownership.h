// Tenancy: windows of jobs, made, taken into a job's pool, asked back from its sessions, retired. Engine thread only.
//
// Invariant: a window is in its job's pool exactly while its condition is kReady; it is retired only when no session
// maps it, or its owner is gone.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Memory came back to the arena, or the arena grew: jobs that wait for room look again.
void WakeShortJobs(Core& core);
bool StartWindow(Core& core, JobState& job);  // False: the arena is at its maximum.
// Takes in what the source has finished. Returns whether there was anything.
bool TakeWindows(Core& core);
// Out of the pool, asked of every session that maps it. REQUIRES: ready, empty, no transfer on it.
void ReturnWindow(Core& core, WindowIndex window);
void OnWindowReturned(Core& core, SessionState& session, WindowIndex window);
// The session is gone, and with it its mappings.
void DropMappings(Core& core, SessionState& session);
// The owner is gone. REQUIRES: nothing of it is in RAM, no transfers.
void RetireAll(Core& core, JobState& job);

}  // namespace tier::tiering
