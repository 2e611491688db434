// Waiting: requests that cannot be answered at once, from the first look to the answer. Where they wait, and what wakes
// them, stands in the WaitTable; each kind is worked on in its own unit (lease_wait, flush, scans). Engine thread only.
//
// Nobody waits for ever: every waiter has a deadline, and gets a typed refusal with figures when it passes; but for a
// persist whose manifest is at the store.
#pragma once

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

struct Enqueued {
  uint32_t timeout_ms = 0;
  uint64_t requested_bytes = 0;
  WaitKind kind;
};
// Units of work of a whole look at the request.
uint32_t CostOf(const Core& core, const Ask& ask);
// Answers the request now if that is possible, else keeps it. NO_MEMORY where its user's metadata has no room for it.
void Enqueue(Core& core, const Ask& ask, Enqueued request);
// Ends what the session has released and no turn has reached yet, before anything that comes behind it.
void FinishReleases(Core& core, const SessionState& session);
// Looks at the job's waiters that are ready, first come first, as far as the turn's work reaches.
void RunWaiters(Core& core, JobState& job);
void ExpireWaiters(Core& core);
// Refuses the requests that wait for bytes that could not be read (Reports).
void RefuseFailedReads(Core& core);
// Answers the persists whose manifests the store has answered.
void AnswerCommitted(Core& core);
// Answers the daemon's own requests for a job that closes: nothing is left for them to do.
void FinishInternal(Core& core, JobState& job);
void DropWaitersOf(Core& core, SessionState& session);
// Every waiter is refused with this, but for those whose manifest is being committed: the store answers them.
void RefuseAll(Core& core, JobState& job, const Refusal& refusal);

}  // namespace tier::tiering
