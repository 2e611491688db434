// SecondCopies: copies on SSD of pieces that are in RAM too. They spare a later write, and are room for what must leave
// RAM now when there is no other. So RAM and SSD devices together can be filled, except for one block, and every piece
// can still be exchanged. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The piece was just read. Where that took the last block, its copy on SSD is given up at once: leases may hold it in
// RAM for long.
void GiveUpSecondCopyIfFull(Tables& tables, PieceId id);
// Gives up copies of so many pages, the coldest ones of some job, for the end of this turn; those pieces are dirty
// then. False: there are none, or the turn has no more work left; the copies that a manifest names are not given up.
bool GiveUpSecondCopies(Tables& tables, uint32_t pages);

}  // namespace tier::tiering
