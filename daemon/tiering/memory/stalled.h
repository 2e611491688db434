// Stalled: requests that need more than their job is promised, while others hold all memory. Engine thread only.
//
// Three jobs of an arena may each hold their promise, each with a request that is larger than that: no job has a
// surplus, so that nothing comes back, and nobody would be served before the deadlines. Such requests are served one
// after the other: the other jobs are asked for windows in which nothing is leased, whatever they are promised. A job
// that is owed memory within its promise goes first. Each request has its turn for kServingMax at most, so that one
// whose memory is under the leases of others does not keep the rest from theirs.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The longest turn of one request. What can be had without waiting for a lease comes within some milliseconds.
inline constexpr base::Duration kServingMax = std::chrono::milliseconds(500);
// So long those who are owed memory within their promise go first.
inline constexpr base::Duration kOwedPatience = std::chrono::milliseconds(100);

// Once a turn: ends the turn of a request that was answered or had its time, and begins the next one's.
void ServeStalled(Tables& tables);

}  // namespace tier::tiering
