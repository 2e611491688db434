// Grants: which session may touch which bytes. CheckConflicts says what blocks a request; Grant grants all of it;
// Release and EndLease end its leases. Engine thread only.
//
// Several items are granted all or nothing: no item is granted before all of them can be. Under a write lease the old
// SSD copy is the one to revert to; the seal makes that copy obsolete.
#pragma once

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {

// Grants leases and writes the reply. REQUIRES: CheckConflicts said kReady, and nothing changed since.
void Grant(Tables& tables, const Ask& ask);
// The same for a part of a request: the items from `first` on. Its spans are added to these, and nothing is answered.
void GrantPart(Tables& tables, const Ask& ask, uint32_t first, std::vector<proto::SpanRecord>* spans);
// Answers with the spans of all parts.
void AnswerParts(Tables& tables, SessionState& session, uint64_t sequence, std::span<const proto::SpanRecord> spans);
// Bytes that the granted leases add to the user's metadata.
uint64_t GrantCost(const Tables& tables, const Ask& ask);
// Ends a lease; a write lease is sealed, as the range `part` of a swap_out where that is given.
void Release(Tables& tables, LeaseIndex index, const SwapPart& part = {});
// Removes the lease without touching its pieces.
void EndLease(Tables& tables, LeaseIndex index);

}  // namespace tier::tiering
