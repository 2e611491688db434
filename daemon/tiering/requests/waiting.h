// Waiting: requests that cannot be answered at once, from the first look to the answer. Where they wait, and what wakes
// them, stands in the WaitTable; each kind is worked on in its own unit (lease_wait, flush, scans). Engine thread only.
//
// Nobody waits without a limit: every waiter has a deadline, and gets a typed refusal with figures when it passes. Only
// a persist whose manifest is at the store has none.
#pragma once

#include <optional>

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

struct Enqueued {
  uint32_t timeout_ms = 0;
  uint64_t requested_bytes = 0;
  std::optional<ConflictCheck> known;  // What a check of the ask has just found. Nothing has changed since.
  WaitKind kind;
};
// Units of work of a whole look at the request.
uint32_t CostOf(const Tables& tables, const Ask& ask);
// Answers the request now if that is possible, else keeps it. NO_MEMORY where its user's metadata has no room for it.
void Enqueue(Tables& tables, const Ask& ask, Enqueued request);
// Ends what the session has released and no turn has reached yet, before anything that comes behind it.
void FinishReleases(Tables& tables, const SessionState& session);
// The same of a session that has ended, as far as the turn's work reaches. True: nothing of it is left.
bool ContinueReleases(Tables& tables, const SessionState& session);
// Looks at the job's waiters that are ready, first come first, as far as the turn's work reaches.
void RunWaiters(Tables& tables, JobState& job);
void ExpireWaiters(Tables& tables);
// Refuses the requests that wait for bytes that could not be read (Reports).
void RefuseFailedReads(Tables& tables);
// Answers the persists whose manifests the store has answered.
void AnswerCommitted(Tables& tables);
// Answers the daemon's own requests for a job that closes: nothing is left for them to do.
void FinishInternal(Tables& tables, JobState& job);
// The session ends: as far as the turn's work reaches, its requests go without an answer. True: it has none any more.
// Until then none of them is granted, refused or answered.
bool DropWaitersOf(Tables& tables, const SessionState& session);
// Every waiter is refused with this, except those whose manifest is being committed: the store answers them.
void RefuseAll(Tables& tables, JobState& job, const Refusal& refusal);

}  // namespace tier::tiering
