// Hand-over: windows go from jobs that hold more than their guarantee to jobs that wait within theirs. Engine thread
// only.
//
// Only what is not leased is taken: empty windows first, then windows whose pieces can all be evicted (dirty ones are
// written out first, and looked at again later). Forced return of leased memory is not done here.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Looking for windows to hand over: not more often than this, and going over so many pieces at a time.
inline constexpr base::Duration kHandOverInterval = std::chrono::milliseconds(2);
inline constexpr uint32_t kHandOverWorkMax = 16384;

// A job waits for memory that others hold beyond their guarantee: empties and returns their windows.
void HandOver(Core& core);
// Nobody waits any more: windows that were chosen to be emptied stay.
void StopHandOver(Core& core);

}  // namespace tier::tiering
