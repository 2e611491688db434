// Releases: a request that ends leases. Engine thread only.
//
// Whatever is wrong with one of its items, the others are gone through; the answer is about the first that was refused.
// Each lease costs the turn's work as many units as it has pieces: what a turn does not reach waits for the next ones,
// in order, without a deadline.
#pragma once

#include <span>

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

// Goes on with the items, as far as the turn's work reaches. True: all of them were gone through.
bool ReleaseMore(Tables& tables, SessionState& session, std::span<const proto::RequestItem> items, uint32_t flags,
                 ReleaseWait* wait);
Outcome AdvanceRelease(Tables& tables, Waiter& waiter);
// All that is left of it, however much: what its session does next comes behind it.
Outcome FinishRelease(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
