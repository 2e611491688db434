// Eviction: which pieces leave RAM when their job needs room, of those that need not be written first. Engine thread
// only.
//
// The coldest goes that makes the room. Where a run of pages is lacking and slots alone can go, their order of use
// would empty no block before nearly all of them were gone: the slots of one block go together then, that of the
// coldest of which all slots can go.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The room that is to come.
struct RoomWanted {
  uint32_t pages = 0;       // Of one run, or of some for a slot. 0: any room is welcome.
  bool together = false;    // What went one by one made no such room: now the slots of a block, or a whole block.
  bool one_by_one = false;  // Where no block can go as a whole, slots go all the same: moves bring them together.
};

// Evicts a piece, or all that lies in a block. False: none of that order can go, or none of it would make the room.
bool EvictFirst(Tables& tables, JobState& job, EvictionOrder order, const RoomWanted& wanted);
// Of the pieces that are kept for a use to come, those that were kept long enough are as any other from now on.
void EndOldPrefetches(Tables& tables, JobState& job);
// What is pinned, or goes with its tensor, leaves the order when it is met: once, so a search may do it however little
// of the turn is left. A pinned one comes back when its last pin ends.
void TakeOutOfOrder(Tables& tables, PieceId id);

}  // namespace tier::tiering
