// Scans: requests that go over every piece of the tensors they name and grant nothing: drop, stat, accept. Engine
// thread only.
//
// A tensor may have millions of pieces, and a turn belongs to everybody: a scan goes as far as the turn's looks reach,
// and on from there in the next.
#pragma once

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

constexpr bool IsScan(proto::Op op) {
  return op == proto::Op::kDrop || op == proto::Op::kStat || op == proto::Op::kAccept;
}
// Goes over the ask's items. True: to the end, and answered. False: `scan` says how far. REQUIRES: resolved.
bool RunScan(Tables& tables, const Ask& ask, Scan* scan);
// The same for a request that waits. kAnswered: to the end.
Outcome AdvanceScan(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
