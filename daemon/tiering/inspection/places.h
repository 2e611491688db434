// Where pieces lie, for tests that check transfers. Engine thread only.
#pragma once

#include <vector>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Of every live piece, and of every freed piece that a transfer still uses. O(pieces).
std::vector<PiecePlace> NamedPlaces(const Tables& tables);

}  // namespace tier::tiering
