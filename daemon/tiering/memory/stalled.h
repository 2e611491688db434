// Stalled: requests that need more than their job is promised, while other jobs hold all memory. Engine thread only.
//
// Three jobs of an arena may each hold their promise, and each have a request that is larger than that: no job has a
// surplus, so no memory comes back, and no request would be served before its deadline. (A job that makes room of its
// own, by its writes for example, is not stalled, however much it holds.) Such requests are served one after the other:
// the other jobs are asked for windows in which nothing is leased. Users have their turns in equal number.
//
// An explicit guarantee is never taken from. An equal part is given by jobs of the same user, by idle jobs (lending.h),
// and by jobs that are stalled themselves: they have more in their own turn. A job of another user that works within
// its equal part keeps it: a request for more than its own job is promised is no reason to take what others use. It may
// grow to that meanwhile.
// No request is served while a guarantee is owed, or a window of such an equal part, and serving ends when one is. Jobs
// that are owed memory within other equal parts go first for kOwedPatience. Each request is served for kServingMax at
// most, so that one whose memory is under the leases of other jobs does not delay the rest without a limit. A request
// for which all of that is too little waits to its deadline.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The longest time that one request is served. Memory that needs no lease to end comes within some milliseconds.
inline constexpr base::Duration kServingMax = std::chrono::milliseconds(500);
// How long jobs that are owed memory within their promise go first.
inline constexpr base::Duration kOwedPatience = std::chrono::milliseconds(100);

// Once a turn: stops serving a request that was answered or has had its time, and begins with the next one. Work: the
// jobs that are short of room, and those that are owed memory.
void ServeStalled(Tables& tables);
// The number of the first request of the job, if that needs more than the job is promised. 0: it does not. For
// Ledger::SetStalled.
uint64_t StalledBy(const Tables& tables, const JobState& job);

}  // namespace tier::tiering
