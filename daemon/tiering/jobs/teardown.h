// Teardown: gives back what is left when a session ends or a job is closed. Engine thread only.
//
// What a dead session held is given back in the turn of its death, unless it is more than a turn's work: then later
// turns give back its requests, its unfinished updates, its leases and its creations, in this order. None of its
// requests is answered. Requests of other sessions wait for the tensors that it had begun to change, which are TORN
// then (updates.h). rollback.h says what becomes of pieces under its write leases.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

enum class EndedBy : uint8_t { kEngine, kSessionLayer };  // The engine tells the session layer of its own.
struct Ending {
  Code code = Code::kOk;  // REVOKED: its process goes on.
  std::string reason;
  EndedBy by = EndedBy::kEngine;
};
// Gives back everything that the session holds, large amounts over several turns (deferred_free.h). Its job stays.
void EndSession(Tables& tables, SessionState& session, const Ending& ending);

// Charges the session's user for so many bytes of unread answers. Where they do not fit into the user's metadata, the
// session of that user with the most unread bytes ends.
void SetUnread(Tables& tables, SessionState& session, uint64_t bytes);

// Once a turn: continues with sessions that held more than a turn gives back, each with an equal part of the work.
void ContinueTeardowns(Tables& tables);

// Ends the sessions of jobs whose windows could not be touched (WindowFault).
void EndFaultedJobs(Tables& tables);

// Ends the job's sessions and frees everything. `purge`: its manifest too.
void CloseJob(Tables& tables, JobState& job, const std::string& reason, bool purge);
// Gives back the windows of closed jobs whose last transfer has ended.
void SweepClosedJobs(Tables& tables);

}  // namespace tier::tiering
