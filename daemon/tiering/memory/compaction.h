// Compaction: moves unleased pieces in RAM, so that free pages that lie scattered become a run. Engine thread only.
//
// Slots share blocks, so a job may have enough free pages and no block, or only holes that are too small for the runs
// in which a piece may lie. A region of the needed length is chosen in a block with much free room; its slots move to
// holes of other blocks, or of that block beside the region, in several runs where no hole takes one whole. Else the
// slots of several blocks are packed into a free one: that gives one block more than it takes, or a hole of what it
// does not need. Blocks with a leased slot stand behind all others: they hide none of them, however many they are.
//
// The causes are requests that lack room (requests/scattered_room.h) and windows that are to be emptied; nothing is
// looked at without one.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

enum class Compacted : uint8_t {
  kStarted,   // Moves have begun that make the room.
  kLater,     // Other copies must end first: then the requests of the job are looked at again.
  kNextTurn,  // The turn has no work left.
  kNo,        // Nothing can be moved that would make it.
};

// Compaction may help a job that lacks so many pages: it has them, scattered, and its last tries were not in vain.
bool MayCompact(const Tables& tables, const JobState& job, uint64_t pages);
// Makes room for a run of `pages` (≤ 512) beside what is free now. Where the turn has no work left it goes on in the
// next one, behind what `search` has passed.
Compacted Compact(Tables& tables, JobState& job, uint32_t pages, SparseSearch* search);
// The same by packing the slots of several blocks into a free one, which nothing else may need meanwhile. It begins
// with the same blocks in each turn.
Compacted CompactIntoFreeBlock(Tables& tables, JobState& job, uint32_t pages);

}  // namespace tier::tiering
