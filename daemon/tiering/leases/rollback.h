// Reversal: write leases that end without a seal. What is under them goes back to the SSD copies of the last sealed
// generation, or is torn. Engine thread only.
//
// Unless the leases cover every piece of a tensor that their session had changed since the tensor was last whole (a
// whole seal, a step of that session, a manifest), what goes back no longer belongs to what stays: those pieces are
// marked mixed and the tensor answers TORN. All leases are judged before the first goes back, and marked before any of
// them can be read again, so the work may be spread over turns.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// REQUIRES: exclusive.
void AddToRollback(const Core& core, const Lease& lease, Rollback* rollback);
// Judges and marks as far as `budget`, which falls with each piece. True: to the end.
bool DetectMixedGenerations(Core& core, const SessionState& session, Rollback* rollback, uint32_t* budget);
// Its pieces go back or tear; of a tensor that nobody can name they only stop being leased. The lease is still to be
// ended.
void RevertLease(Core& core, const Lease& lease);

}  // namespace tier::tiering
