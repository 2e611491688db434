// Merging: while window indices run short, small windows of a job become one larger window. Engine thread only.
//
// A job that has grown to 64 GiB has some 2,000 windows, most of them as small as it was when they were started. Four
// such jobs take most of the indices of a node, and a job that comes later would get large windows only, however small
// it is. So the job gets a new window of the size that its windows should have now (WindowSource::wishes), what lies in
// its smallest ones moves there (emptying.h), and these are returned. Where the job has room for some of its windows in
// others, as in a large one of which it uses a part, they go without a new one. No piece is evicted or written for
// that, and nothing that is leased moves.
//
// Merges are found by a walk through the window table, begun when a window was started, and one is under way at a time.
// Hand-over comes first: what a job is owed ends a merge. While one is under way its job holds the new window beside
// the old ones.
//
// Work: kMergeWalkMax entries of the table in a turn, and the windows of one job when a merge begins.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr uint32_t kMergeWalkMax = 2048;
inline constexpr uint64_t kMergedMin = 4;  // Windows that one takes the place of; each has 1/4 of its size at most.
// After a merge by which few of the windows went that were chosen: what lies in them is leased or busy now.
inline constexpr base::Duration kMergeRetryInterval = std::chrono::milliseconds(10);

// Goes on with the merge that is under way, or looks for another one. Once a turn.
void MergeWindows(Tables& tables);
// Hand-over needs the pass: the windows stay with their job.
void StopMerge(Tables& tables);

}  // namespace tier::tiering
