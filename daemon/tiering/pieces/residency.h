// Residency: what lies where. The only functions that change a piece's state, its RAM run or its extent; the books of
// its job (dirty, used, on SSD) and the eviction order follow from each change. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"
#include "daemon/tiering/tables/transitions.h"

namespace tier::tiering {

// CHECK-fails on a move that transitions.h does not allow. REQUIRES: `ram` as it is on the side that has a RAM copy.
void SetState(Tables& tables, PieceId id, PieceState to);

inline WindowUse UseOf(const Piece& piece) {
  const bool idle = piece.activity == Activity::kNone && piece.read_leases == 0 && piece.pins == 0;
  if (idle && piece.copies == Copies::kRamSsd) return WindowUse::kClean;
  return idle && piece.copies == Copies::kRam ? WindowUse::kDirty : WindowUse::kBound;
}
// It has RAM that no write or eviction brings back: leased, being created, torn.
inline bool Held(const Piece& piece) {
  const bool leased = piece.read_leases != 0 || piece.activity == Activity::kLeasedWrite;
  return piece.ram && (leased || piece.copies == Copies::kCreating || piece.copies == Copies::kTorn);
}
// What its job's leased bytes and its window's counts depend on. The unit that changes it notes it before, and tells
// afterwards what it was.
struct UseOfRam {
  bool held = false;
  WindowUse use{};
};
inline UseOfRam UseOfRamOf(const Piece& piece) { return {Held(piece), UseOf(piece)}; }
void ChangeUse(Tables& tables, const Piece& piece, UseOfRam before);

// The run becomes the piece's room. REQUIRES: out of its job's pool; the piece has none.
void GiveRam(Tables& tables, PieceId id, base::PageRun run);
void DropRam(Tables& tables, PieceId id);  // Back to the pool; requests that wait for room are tried again.
// The same for room that was given a moment ago and is not needed: nobody has anything to gain from a retry.
void TakeBackRam(Tables& tables, PieceId id);
// Frees the extent at the end of the turn; or leaves it to the manifest that names it, or quarantines it. REQUIRES: the
// piece has one.
void DropExtent(Tables& tables, PieceId id);
void GiveExtent(Tables& tables, PieceId id, storage::Extent extent);
void FreeExtent(Tables& tables, JobState& job, storage::Extent extent, bool bad);

void AddReader(Tables& tables, PieceId id);
void RemoveReader(Tables& tables, PieceId id);
// A lease or a pin on it ended, or it was read: enters the eviction order at the hot end where it may be evicted.
void Touch(Tables& tables, PieceId id);
// Takes it out of the eviction order, until the next Touch or change of state.
void Delist(Tables& tables, PieceId id);
// Clean, unleased → on SSD only.
void Evict(Tables& tables, PieceId id);
// What lies in its RAM means nothing: the piece falls back to its SSD copy. Its room stays with the waiters that have
// pinned it, else it is freed. REQUIRES: it has an SSD copy; being read in, or leased for writing.
void RevertToSsd(Tables& tables, PieceId id);

// A waiter needs it to stay where it is. False: too many do.
bool Pin(Tables& tables, PieceId id);
void Unpin(Tables& tables, PieceId id);

}  // namespace tier::tiering
