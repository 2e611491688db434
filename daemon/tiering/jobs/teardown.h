// Teardown: what is left when a writer gives up, a session ends or a job is closed. Engine thread only.
//
// What a dead session held is given back in the turn of its death, unless it is more than a turn's work: then its
// requests, the updates that it had not finished, its leases and its creations stand until their turn comes, in this
// order. None of its requests is answered, and others wait for what it had begun to change, which is TORN then
// (updates.h). What becomes of pieces under its write leases: rollback.h.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct Ending {
  Code code = Code::kOk;  // kOk: the session layer knows already; else it is told.
  std::string reason;
};
// Everything it holds is given back, what is much over some turns (deferred_free.h). Its job
// stays.
void EndSession(Tables& tables, SessionState& session, const Ending& ending);

// Its client leaves so many bytes of answers unread, at its user's cost. Where they do not fit into the user's
// metadata, that session of the user ends that leaves most unread.
void SetUnread(Tables& tables, SessionState& session, uint64_t bytes);

// Once a turn: goes on with sessions that held more than a turn gives back, each for its part.
void ContinueTeardowns(Tables& tables);

// Ends the sessions of jobs whose windows could not be touched (WindowFault).
void EndFaultedJobs(Tables& tables);

// Ends its sessions and frees everything. `purge`: its manifest too.
void CloseJob(Tables& tables, JobState& job, const std::string& reason, bool purge);
// Closed jobs whose last transfer has ended give back their windows.
void SweepClosedJobs(Tables& tables);

}  // namespace tier::tiering
