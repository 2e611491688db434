// Scans: requests that go over every piece of the tensors they name and grant nothing: drop, stat, accept. Engine
// thread only.
//
// A tensor may have millions of pieces, and one turn serves all sessions: a scan goes as far as the turn's work
// reaches, and continues from there in the next turn.
#pragma once

#include "daemon/tiering/leases/grants.h"

namespace tier::tiering {

constexpr bool IsScan(proto::Op op) {
  return op == proto::Op::kDrop || op == proto::Op::kStat || op == proto::Op::kAccept;
}
// Goes over the ask's items. True: to the end, and the request is answered. False: `scan` says how far. REQUIRES:
// resolved.
bool RunScan(Tables& tables, const Ask& ask, Scan* scan);
// Continues the scan of a request that waits. kAnswered: it is done.
Outcome AdvanceScan(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
