// Death: what remains when a writer gives up, a session ends or a job is closed. Engine thread only.
//
// What a dead session held is given back in the turn of its death, unless it is more than a turn's work: then its
// leases stand until their turn comes, as if it lived. What becomes of pieces under its write leases: rollback.h. What
// it had begun to change and not finished is TORN at once: updates.h.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

struct Ending {
  Code code = Code::kOk;  // kOk: the session layer knows already; else it is told.
  std::string reason;
};
// Everything it holds is given back, what is much over some turns (deferred_free.h). The last session of an ephemeral
// job closes the job.
void EndSession(Core& core, SessionState& session, const Ending& ending);

// Its client leaves so many bytes of answers unread, at its user's cost. Where they do not fit into the user's
// metadata, that session of the user ends that leaves most unread.
void SetUnread(Core& core, SessionState& session, uint64_t bytes);

// Once a turn: goes on with sessions that had more leases than a turn ends, each for its part.
void ContinueTeardowns(Core& core);

// Ends the sessions of jobs whose windows could not be touched (WindowFault).
void EndFaultedJobs(Core& core);

// Ends its sessions and frees everything. `forget`: its manifest too.
void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget);
// Closed jobs whose last transfer has ended give back their windows.
void SweepClosedJobs(Core& core);

}  // namespace tier::tiering
