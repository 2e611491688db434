// Leaving: a piece gives up the place on SSD in which it lies, for another one that the ExtentStore chooses. Its
// content comes into RAM for that where it is not there, as room and the port allow. Engine thread only.
#pragma once

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

enum class Leaving : uint8_t {
  kNot,      // It cannot leave, or not before something else happens to it.
  kLater,    // It is on its way, or may leave soon.
  kStarted,  // It leaves now, or comes into RAM for that.
  kFull,     // Nothing more can leave now.
};

// The old place becomes free at the end of the turn in which the piece has been written elsewhere; until then it is the
// piece's. REQUIRES: the piece has an extent and was not freed.
// `may_evict`: for its content, where that is not in RAM.
Leaving LeaveExtent(Tables& tables, PieceId id, MayEvict may_evict);

}  // namespace tier::tiering
