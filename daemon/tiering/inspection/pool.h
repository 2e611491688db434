// Figures of the pool: what each job holds, and what each window is filled with. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

PoolFigures PoolOf(const Tables& tables, const JobState& job);  // O(1).
// A look at each window.
std::array<uint64_t, kPoolConditions> CountConditions(const Tables& tables);
PoolView ViewPool(const Tables& tables);  // And a look at each job.
// The pages of each window, and the bytes of each job, are those of its pieces in RAM. O(pieces): for tests.
void CheckPool(const Tables& tables);

}  // namespace tier::tiering
