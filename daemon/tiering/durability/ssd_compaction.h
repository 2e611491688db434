// SsdCompaction: sparse blocks of a device are rewritten, so that a piece finds one run again where it would have to be
// scattered over holes (decision 0044). Engine thread only.
//
// Begun by a cause: an extent had to be scattered. A census goes over all pieces once, and counts which of the sparsest
// blocks hold only pieces that can leave: of open jobs, and not named by a manifest, which would keep their place. Of
// these the sparsest are cleared, as many as what was scattered needs. Pieces that are still scattered half a minute
// later, so that they are not written again at each step, are given one run too.
#pragma once

#include <optional>

#include "daemon/base/time.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void CompactSsd(Tables& tables);
// None: there is nothing to be done.
std::optional<base::TimePoint> NextSsdCompaction(const Tables& tables);

}  // namespace tier::tiering
