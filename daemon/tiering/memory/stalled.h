// Stalled: requests that need more than their job is promised, while other jobs hold all memory. Engine thread only.
//
// Three jobs of an arena may each hold their promise, and each have a request that is larger than that: no job has a
// surplus, so no memory comes back, and no request would be served before its deadline. (A job that makes room of its
// own, by its writes for example, is not stalled, however much it holds.) Such requests are served one
// after the other: the other jobs are asked for windows in which nothing is leased, also for their equal parts. An
// explicit guarantee is not taken from: its job is asked only for what lies beyond, no request is served while a
// guarantee is owed, and serving ends when one is. Jobs that are owed memory within equal parts go first for
// kOwedPatience. Each request is served for kServingMax at most, so that one whose memory is under the leases of other
// jobs does not delay the rest without a limit. Meanwhile no other job gets leases beyond its promise: one that leases
// the same again and again would leave no moment in which its windows could go.
//
// A job of another user that works within its promise loses by that what it then reads again: while it is owed memory,
// and the job that was served last has more than its promise by that service, it misses what that got. Afterwards no
// request is served for nine times as long (tables/serving.h). So all requests beyond promises together take about a
// tenth of the time from those who work within theirs, however many ask, and for whatever user; one of many may come to
// its deadline. Where no job is owed memory there is no pause: jobs that all ask for more than they are promised, idle
// ones, and those of one user have their turns at once.
#pragma once

#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The longest time that one request is served. Memory that needs no lease to end comes within some milliseconds.
inline constexpr base::Duration kServingMax = std::chrono::milliseconds(500);
// How long jobs that are owed memory within their promise go first.
inline constexpr base::Duration kOwedPatience = std::chrono::milliseconds(100);

// Once a turn: stops serving a request that was answered or has had its time, and begins with the next one.
void ServeStalled(Tables& tables);
// When a service or a pause ends, or leases are held back no longer. None: what waits is woken by others.
std::optional<base::TimePoint> NextServing(const Tables& tables);

}  // namespace tier::tiering
