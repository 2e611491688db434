// Scans: requests that go over every piece of the tensors they name and grant nothing: drop, stat, accept, tear. Engine
// thread only.
//
// A tensor may have millions of pieces, and a turn belongs to everybody: a scan goes as far as the turn's looks reach,
// and on from there in the next.
#pragma once

#include "daemon/tiering/grants.h"

namespace tier::tiering {

constexpr bool IsScan(proto::Op op) {
  return op == proto::Op::kDrop || op == proto::Op::kStat || op == proto::Op::kAccept || op == proto::Op::kTear;
}
// Over core.items. Answers now, or keeps the request. REQUIRES: resolved.
void StartScan(Core& core, SessionState& session, const Request& request);
// Its tensor answers TORN until it is rewritten, accepted or freed. Whatever its state: it is a mark beside the bytes,
// so it needs no room and waits for nobody. REQUIRES: visible.
void TearPiece(Core& core, PieceId id);
// True: the waiter was answered and is gone.
bool AdvanceScan(Core& core, WaiterList::iterator waiter);

}  // namespace tier::tiering
