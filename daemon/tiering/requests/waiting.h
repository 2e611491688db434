// Waiting: requests that cannot be answered at once, from the first attempt to the answer. The WaitTable knows where
// they wait and what wakes them; each kind is worked on in its own unit (lease_wait, flush, scans, releases). Engine
// thread only.
//
// No request waits without a limit: every waiter has a deadline, and gets a typed refusal with figures when it passes.
// Only what goes on in each turn (a release, a long create), and a persist whose manifest is at the store, have none.
#pragma once

#include <optional>

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

struct Enqueued {
  uint32_t timeout_ms = 0;
  uint64_t requested_bytes = 0;
  std::optional<ConflictCheck> known;  // Result of a check just made; nothing has changed since.
  bool put_off = false;                // It has had its part of this turn.
  WaitKind kind;
};
// Units of work of a whole attempt of the request.
uint32_t CostOf(const Tables& tables, const Ask& ask);
// Answers the request now if that is possible, else keeps it as a waiter. NO_MEMORY if its user's metadata has no room
// for that.
void Enqueue(Tables& tables, const Ask& ask, Enqueued request);
// Ends the leases of releases that no turn has reached yet, before a later request of the session.
void FinishReleases(Tables& tables, const SessionState& session);
// Ends such leases of an ended session, as far as the turn's work reaches. True: none is left.
bool ContinueReleases(Tables& tables, const SessionState& session);
// Continues the job's ready waiters, in the order of arrival, as far as the turn's work reaches.
void RunWaiters(Tables& tables, JobState& job);
void ExpireWaiters(Tables& tables);
// Refuses the requests that wait for bytes that could not be read (Reports).
void RefuseFailedReads(Tables& tables);
// Answers the persists whose manifests the store has committed or refused.
void AnswerCommitted(Tables& tables);
// Answers the daemon's own requests for a job that closes: they have nothing left to do.
void FinishInternal(Tables& tables, JobState& job);
// The session ends: removes its requests without an answer, as far as the turn's work reaches. True: it has none any
// more. Until then none of them is granted, refused or answered.
bool DropWaitersOf(Tables& tables, const SessionState& session);
// Refuses every waiter of the job, except those whose manifest is being committed: these are answered when the store
// has answered.
void RefuseAll(Tables& tables, JobState& job, const Refusal& refusal);

}  // namespace tier::tiering
