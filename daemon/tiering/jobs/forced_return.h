// Forced return: what ends the wait of a job that is owed memory within its promise while other jobs lease more than
// theirs. Engine thread only.
//
// A job is owed when it has a claim in the ledger and lacks a whole slot window, or has none. A claim ends 100 ms after
// the request that made it, so a job whose request was refused is owed nothing until it asks again: its time goes on
// across a gap of at most kOwedGapMax, in which it came to hold no more. Once that time is
// EngineOptions::reclaim_deadline, of all sessions of jobs that lease more than they are promised the one with the most
// leased bytes beyond its part ends with REVOKED. Its part is an equal share of its job's promise. Then the case is
// checked again, not before kNextReturnAfter: that is the time in which windows come back that clients are asked for. A
// job that leases no more than its promise, to within a slot window, loses no session.
//
// Work of one call: the jobs that are owed. When it checks, also all jobs, and the sessions of those that lease too
// much: every kCheckInterval at most.
#pragma once

#include <chrono>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr base::Duration kOwedGapMax = std::chrono::seconds(1);
inline constexpr base::Duration kNextReturnAfter = std::chrono::seconds(2);
inline constexpr base::Duration kCheckInterval = std::chrono::milliseconds(100);

// Once a turn, after hand-over.
void ForceReturns(Tables& tables);

}  // namespace tier::tiering
