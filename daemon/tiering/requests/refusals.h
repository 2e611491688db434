// Refusals in words and figures: what was asked, what is available, what the limit is, which jobs hold the rest. Engine
// thread only.
#pragma once

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/requests/holders.h"

namespace tier::tiering {

// Only the asking session's own leases block the request; lists them.
Refusal OwnLeasesRefusal(const Tables& tables, const SessionState& session, uint64_t tensor);
// A lease of another session, an unsealed tensor or a transfer blocked the request to the end.
Refusal BlockedRefusal(const Tables& tables, const Ask& ask, const ConflictCheck& at);
// No room in RAM.
Refusal NoMemoryRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes);
// It would be a lease beyond the promise of its job, and other jobs wait for memory (LeaseFit::kHeldBack).
Refusal HeldBackRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes);
// No room in RAM because nothing could be written out.
// Its writes, or those that would make room for it, fail.
Refusal WriteFailureRefusal(const Tables& tables, const Waiter& waiter);
// The refusal of a waiter whose deadline has passed.
Refusal DeadlineRefusal(const Tables& tables, const Waiter& waiter);

}  // namespace tier::tiering
