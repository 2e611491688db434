// Waiting: who is next. Requests that cannot be answered at once wait in their job's order; each change that may help
// them has the job pumped, which answers what can be answered. Engine thread only.
//
// Nobody waits for ever: every waiter has a deadline, and gets a typed refusal with figures when it passes; but for a
// persist whose manifest is at the store.
#pragma once

#include "daemon/tiering/grants.h"

namespace tier::tiering {

inline constexpr uint32_t kWaitersMax = 1u << 20;  // Of all jobs.

struct Enqueued {
  uint32_t timeout_ms = 0;
  uint64_t requested_bytes = 0;
  Scan scan;
  bool everything = false;  // It names no tensor.
};
// Answers the request now if that is possible, else keeps it.
void Enqueue(Core& core, const Ask& ask, const Enqueued& request);
// Looks at the job's waiters, first come first.
void PumpJob(Core& core, JobState& job);
// Gives those that came since the last turn their deadlines.
void TimeNewWaiters(Core& core);
void ExpireWaiters(Core& core);
// Those that gather this piece (its bytes could not be read) are refused.
void RefuseGatherers(Core& core, PieceId id, const Refusal& refusal);
void DropWaitersOf(Core& core, SessionState& session);
// Every waiter is refused with this, but for those whose manifest is being committed: the store answers them.
void RefuseAll(Core& core, JobState& job, const Refusal& refusal);

void AnswerValue(Core& core, SessionState& session, uint64_t sequence, proto::Op op, uint64_t value);
struct Answered {
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint64_t value = 0;  // Failing item.
};
void AnswerRefusal(Core& core, SessionState& session, const Answered& to, Refusal refusal);

// Takes away a waiter that was answered.
void EndWaiter(Core& core, WaiterList::iterator waiter);
// Ends a waiter with a value. For the parts that finish requests later (persist).
void FinishWaiter(Core& core, WaiterList::iterator waiter, uint64_t value);
void RefuseWaiter(Core& core, WaiterList::iterator waiter, Refusal refusal, uint64_t item);

}  // namespace tier::tiering
