// Options change: what the engine takes over of its options while it runs: deadlines, limits of jobs and sessions, and
// when to write and evict. What sizes a table, and what decides how requests are told apart, stays as it was at the
// start. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// REQUIRES: write_behind_start <= evict_start, as at the start. Every job is looked at once in the turns that follow.
void ChangeOptions(Tables& tables, const EngineOptions& options);

}  // namespace tier::tiering
