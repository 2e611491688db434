// MoveTransfers: pieces that only a manifest holds, on their way from one device to another through a block of memory
// of the daemon (tables/move_state.h). Engine thread only.
//
// They are read and written behind what jobs do: within the port's limits, one read at a time while others are queued.
#pragma once

#include <cstdint>

#include "daemon/storage/transfer.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// False: not now. REQUIRES: the block has its piece, and the piece's device is readable.
bool TryStartMoveRead(Tables& tables, MoveBlock& block);
enum class MoveWrite : uint8_t {
  kStarted,
  kLater,     // The port is full, or every device with room takes nothing just now.
  kNextTurn,  // The end of this turn frees some, or the turn has no work left.
  kNoRoom,    // On no other device.
};
// REQUIRES: kRead.
MoveWrite TryStartMoveWrite(Tables& tables, MoveBlock& block);
// A transfer of such a block has ended. REQUIRES: its cookie has kMoveCookie.
void TakeMoveResult(Tables& tables, const storage::TransferResult& result);

}  // namespace tier::tiering
