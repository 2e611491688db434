// Releases: a request that ends leases. Engine thread only.
//
// An item that is refused does not stop the others; the answer is about the first refused one. A turn ends
// kItemsPerTurnMax of a request at most, and each lease costs as many units of work as it has pieces: items that a turn
// does not reach wait for the next turns, in order, without a deadline.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

enum class Released : uint8_t {
  kAll,
  kPart,    // They have had their part of the turn.
  kNoWork,  // The turn has not enough left for the next one.
};
// Continues with the items, as far as this turn goes.
Released ReleaseMore(Tables& tables, SessionState& session, std::span<const proto::RequestItem> items, uint32_t flags,
                     ReleaseWait* wait);
Outcome AdvanceRelease(Tables& tables, Waiter& waiter);
// Does all that is left of the release, however much: the session's next request must come after it.
Outcome FinishRelease(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
