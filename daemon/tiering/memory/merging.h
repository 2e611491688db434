// Merging: while window indices run short, small windows of a job become one larger window. Engine thread only.
//
// A job that has grown to 64 GiB has some 2,000 windows, most of them as small as it was when they were started. Four
// such jobs take most of the indices of a node, and a job that comes later would get large windows only, however small
// it is. So the job gets a new window of the size that its windows should have now (WindowSource::wishes), what lies in
// its smallest ones moves there (emptying.h), and these are returned. Where the job has room for some of its windows in
// others, as in a large one of which it uses a part, they go without a new one: also on a node with indices to spare,
// if a job of 1 GiB or more holds more than 1/256 too much when its use has risen no more for a while. No piece is
// evicted or written for that, and nothing that is leased moves.
//
// Merges are found by a walk through the window table, begun when a window was started, and one is under way at a time.
// Hand-over comes first: what a job is owed ends a merge, unless the job lacks an index and no memory. While one is
// under way its job holds the new window beside the old ones. A merge after which the job has as many windows as before
// is followed by a pause, longer each time (tables/merge_pause.h): clients lease, or what lies in the windows fits no
// hole.
//
// Work of a turn: kMergeWalkMax entries of the table, and half of the stage's units with the windows of jobs that are
// looked through; as many windows are closed or returned as units are left, at least one.
#pragma once

#include <chrono>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr uint32_t kMergeWalkMax = 2048;
// Windows that were leased or busy in the last walk may not be now, and nothing tells.
inline constexpr base::Duration kMergeWalkInterval = std::chrono::seconds(10);
inline constexpr uint64_t kMergedMin = 4;  // Windows that one takes the place of; each has 1/4 of its size at most.

// Goes on with the merge that is under way, or looks for another one. Once a turn.
void MergeWindows(Tables& tables);
// Hand-over needs the pass: the windows stay with their job.
void StopMerge(Tables& tables);

}  // namespace tier::tiering
