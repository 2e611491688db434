// Death: what remains when a writer gives up, a session ends or a job is closed. Engine thread only.
//
// What a dead session held is given back in the turn of its death, unless it is more than a turn's work: then its
// leases stand until their turn comes, as if it lived. What becomes of pieces under its write leases: reversal.h.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

// The holder of a write lease gives it up: its pieces go back or tear; a tensor being created is freed.
void Abandon(Core& core, LeaseSlot slot);

// Takes back an exclusive lease under which nothing was written: its session was never told of it, or says so. A
// creation by that lease is undone.
void Withdraw(Core& core, LeaseSlot slot);

struct Ending {
  Code code = Code::kOk;  // kOk: the session layer knows already; else it is told.
  std::string reason;
};
// Everything it holds is given back, what is much over some turns (graveyard.h). The last session of an ephemeral job
// closes the job.
void EndSession(Core& core, SessionState& session, const Ending& ending);

// Once a turn: goes on with sessions that had more leases than a turn ends, each for its part.
void GoOnWithDepartures(Core& core);

// A transfer could not touch a window of this job: a client of it took the memory away. `id`: the piece, if it still is
// one. The job's sessions end.
void EndAfterWindowFault(Core& core, JobState& job, PieceId id);

// Ends its sessions and frees everything. `forget`: its manifest too.
void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget);
// Closed jobs whose last transfer has ended give back their windows.
void SweepClosedJobs(Core& core);

}  // namespace tier::tiering
