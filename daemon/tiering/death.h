// Death: what remains when a writer gives up, a session ends or a job is closed. Engine thread only.
//
// Pieces under the dead session's write leases go back to their SSD copies of the last sealed generation; those without
// one are torn. Unless its leases covered every piece of a tensor that it had changed since the tensor was last whole
// (a whole seal, a step of that session, a manifest), what went back no longer belongs to what stayed: those pieces are
// marked mixed and the tensor answers TORN.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

// The holder of a write lease gives it up: its pieces go back or tear; a tensor being created is freed.
void Abandon(Core& core, LeaseSlot slot);

// Takes back an exclusive lease that its session was never told of. A creation by that lease is undone.
void Withdraw(Core& core, LeaseSlot slot);

struct Ending {
  Code code = Code::kOk;  // kOk: the session layer knows already; else it is told.
  std::string reason;
};
// Everything it holds is given back, what is much over some turns (graveyard.h). The last session of an ephemeral job
// closes the job.
void EndSession(Core& core, SessionState& session, const Ending& ending);

// A transfer could not touch a window of this job: a client of it took the memory away. `id`: the piece, if it still is
// one. The job's sessions end.
void EndAfterWindowFault(Core& core, JobState& job, PieceId id);

// Ends its sessions and frees everything. `forget`: its manifest too.
void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget);
// Closed jobs whose last transfer has ended give back their windows.
void SweepClosedJobs(Core& core);

}  // namespace tier::tiering
