// Residency: what lies where. The only functions that change a piece's state, its RAM run or its extent; the books of
// its job (dirty, used, on SSD) and the eviction order follow from each change. Engine thread only.
#pragma once

#include "daemon/tiering/tables/core.h"
#include "daemon/tiering/tables/transitions.h"

namespace tier::tiering {

// CHECK-fails on a move that transitions.h does not allow. REQUIRES: `ram` as it is on the side that has a RAM copy.
void SetState(Core& core, PieceId id, PieceState to);

// Keeps the ledger's counts of what lies in each window: −1 before a change of what a piece's use depends on, +1 after.
WindowUse UseOf(const Piece& piece);
// It has RAM that no write or eviction brings back: leased, being created, torn.
bool Held(const Piece& piece);
void CountUse(Core& core, const Piece& piece, int32_t change);

// The run becomes the piece's room. REQUIRES: out of its job's pool; the piece has none.
void GiveRam(Core& core, PieceId id, base::PageRun run);
void DropRam(Core& core, PieceId id);  // Back to the pool; requests that wait for room are tried again.
// The same for room that was given a moment ago and is not needed: nobody has anything to gain from a retry.
void TakeBackRam(Core& core, PieceId id);
// Frees the extent at the end of the turn; or leaves it to the manifest that names it, or quarantines it. REQUIRES: the
// piece has one.
void DropExtent(Core& core, PieceId id);
void GiveExtent(Core& core, PieceId id, storage::Extent extent);
void FreeExtent(Core& core, JobState& job, storage::Extent extent, bool bad);

void AddReader(Core& core, PieceId id);
void RemoveReader(Core& core, PieceId id);
// A lease or a pin on it ended, or it was read: enters the eviction order at the hot end where it may be evicted.
void Touch(Core& core, PieceId id);
// Takes it out of the eviction order, until the next Touch or change of state.
void Delist(Core& core, PieceId id);
// Clean, unleased → on SSD only.
void Evict(Core& core, PieceId id);
// What lies in its RAM means nothing: the piece falls back to its SSD copy. Its room stays with the waiters that have
// pinned it, else it is freed. REQUIRES: it has an SSD copy; being read in, or leased for writing.
void RevertToSsd(Core& core, PieceId id);

// A waiter needs it to stay where it is. False: too many do.
bool Pin(Core& core, PieceId id);
void Unpin(Core& core, PieceId id);

}  // namespace tier::tiering
