// Bound windows: those of a job that hand-over cannot take, because something in each is leased, waited for, being
// created or torn. Engine thread only.
//
// A window goes to another job only whole, and nothing under a lease moves. So one leased page keeps a whole window:
// what a job takes of the arena by its leases are the windows, not the pages. Pieces without a lease do not count:
// hand-over moves or evicts them (memory/emptying.h). A request pins pieces only while others of it are read.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct BoundWindows {
  uint64_t bytes = 0;                               // Of whole windows.
  std::array<uint64_t, kWindowKinds> largest = {};  // Bytes of the largest one of each kind. 0: there is none.
};

// Work: one look at each window of the job.
BoundWindows BoundWindowsOf(Tables& tables, const JobState& job);
// They are more than the job is promised, to within a slot window, and more than its leases need: of the fewest windows
// that can hold these all are full, except the last one of each kind. So a job whose leases fit its promise and lie
// close together never binds too many, also where its windows are larger than what is left of its promise.
bool BindsBeyondPromise(const Tables& tables, const JobState& job, const BoundWindows& bound);
// Goes on with the count of the windows in which the session has leases, as far as the stage has units: one for each
// lease, and one for each run of pages under it. True: all were counted.
bool CountSession(Tables& tables, const SessionState& session, BoundCount* count);

}  // namespace tier::tiering
