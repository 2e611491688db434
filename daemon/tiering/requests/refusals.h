// Refusals in words and figures: what was asked, what is there, what the limit is, who holds the rest. Engine thread
// only.
#pragma once

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

inline constexpr uint32_t kRefusalCost = 32;  // Units of work: who stands in the way is looked for, and named.

// Nothing can be had because only the asking session's own leases stand in the way; lists them.
Refusal OwnLeasesRefusal(const Tables& tables, const SessionState& session, uint64_t tensor);
// A lease of somebody else, an unsealed tensor or a transfer stood in the way to the end.
Refusal BlockedRefusal(const Tables& tables, const Ask& ask, const ConflictCheck& at);
// No room in RAM.
Refusal NoMemoryRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes);
// No room in RAM because nothing could be written out.
Refusal WriteFailureRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes);
// What a waiter hears when its deadline passes.
Refusal DeadlineRefusal(const Tables& tables, const Waiter& waiter);

}  // namespace tier::tiering
