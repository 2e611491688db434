// Forced return: what ends the wait of a job that is owed memory within its promise while other jobs lease more than
// theirs. Engine thread only.
//
// A job is owed when it has a claim in the ledger and lacks a whole slot window, or has none. A claim ends 100 ms after
// the request that made it, so a job whose request was refused is owed nothing until it asks again: its time goes on
// across a gap of at most kOwedGapMax, in which it came to hold no more. Once that time is
// EngineOptions::reclaim_deadline, of all sessions of jobs whose leases bind more windows than they are promised
// (leases/bound_windows.h) the one with the most beyond its part ends with REVOKED. Its part is an equal share of its
// job's promise. No session ends while no request waits: what it keeps would come to none. Then the case is checked
// again, not before kNextReturnAfter: that is the time in which windows come back that clients are asked for. A job
// that binds no more than its promise loses no session.
//
// A job that is kept from leases within its promise is owed them, by jobs that lease beyond theirs, as the guarantees
// of others leave too little. It claims no window for that.
//
// A job whose user's other jobs take up the quota of RAM is owed its promise too, by those of them that have more than
// their parts, and by no other (memory/quota_parts.h).
//
// Hand-over has tried all that costs no session by then: for the whole time it has taken what is empty, and moved,
// evicted or written what is not leased. So windows that are left beyond promises are bound.
//
// Sessions are counted one after the other, over as many calls as that takes (tables/bound_count.h). So which one ends
// is known from what each keeps, and not from a bound. While the host has a debt none is counted: no job may grow.
//
// Work of one call: the jobs that are owed. When a count begins, every kCheckInterval at most, also all jobs, and the
// windows of those that hold more than their promise. Every kCountInterval at most it goes on, with the units of its
// stage.
#pragma once

#include <chrono>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr base::Duration kOwedGapMax = std::chrono::seconds(1);
inline constexpr base::Duration kNextReturnAfter = std::chrono::seconds(2);
inline constexpr base::Duration kCheckInterval = std::chrono::milliseconds(100);
inline constexpr base::Duration kCountInterval = std::chrono::milliseconds(2);

// Once a turn, after hand-over.
void ForceReturns(Tables& tables);

}  // namespace tier::tiering
