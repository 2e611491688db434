// Residency: where each piece lies. Only these functions change a piece's state, its RAM run or its extent; each
// updates the books of its job (dirty, used, on SSD) and the eviction order. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"
#include "daemon/tiering/tables/transitions.h"

namespace tier::tiering {

// CHECK-fails on a move that transitions.h does not allow. REQUIRES: `ram` as it is on the side that has a RAM copy.
void SetState(Tables& tables, PieceId id, PieceState to);

inline WindowUse UseOf(const Piece& piece) {
  if (piece.read_leases != 0 || piece.pins != 0) return WindowUse::kBound;
  if (piece.in_transfer() || piece.activity == Activity::kMoving) return WindowUse::kBusy;
  const bool idle = piece.activity == Activity::kNone;
  if (idle && piece.copies == Copies::kRamSsd) return WindowUse::kClean;
  const bool movable = piece.copies == Copies::kRam || piece.copies == Copies::kTorn;
  return idle && movable ? WindowUse::kDirty : WindowUse::kBound;
}
inline RamClass ClassOf(const Tensor& tensor, base::PageRun run) {
  if (run.whole_block()) return RamClass::kBlock;
  return tensor.size > kBlockSize ? RamClass::kTail : RamClass::kSlot;
}
// It is under a write lease and has a copy on SSD, of the content before.
inline bool IsRewriting(PieceState state) {
  return state.copies == Copies::kRamSsd && state.activity == Activity::kLeasedWrite;
}
// The piece has RAM that no write and no eviction frees: it is leased, being created, or torn.
inline bool Held(const Piece& piece) {
  const bool leased = piece.read_leases != 0 || piece.activity == Activity::kLeasedWrite;
  return piece.ram && (leased || piece.copies == Copies::kCreating || piece.copies == Copies::kTorn);
}
// The properties of a piece that its job's leased bytes and its window's counts depend on. A unit that changes one of
// them notes them before, and passes them to ChangeUse afterwards.
struct UseOfRam {
  bool held = false;
  WindowUse use{};
};
inline UseOfRam UseOfRamOf(const Piece& piece) { return {Held(piece), UseOf(piece)}; }
void ChangeUse(Tables& tables, const Piece& piece, UseOfRam before);

// The runs, in this order, become the piece's room. REQUIRES: they were taken from the pool of the piece's job, and are
// kRamRunsMax at most; the piece has none.
void GiveRam(Tables& tables, PieceId id, std::span<const base::PageRun> runs);
// A copy that was cancelled may still read the run: then it goes back when that ends (RamMoveTable::Reads).
void DropRam(Tables& tables, PieceId id);  // Gives it back to the pool, and wakes requests that wait for room.
// Like DropRam, for room that was given a moment ago and is not needed: it wakes no request, as none could gain by it.
void TakeBackRam(Tables& tables, PieceId id);
// Frees the extent at the end of the turn, leaves it to the manifest that names it, or quarantines it. REQUIRES: the
// piece has an extent.
void DropExtent(Tables& tables, PieceId id);
void GiveExtent(Tables& tables, PieceId id, storage::Extent extent);
void FreeExtent(Tables& tables, JobState& job, storage::Extent extent, bool bad);

// A run of the piece has moved: it lies in `to` from now on, and `from` is still taken. REQUIRES: `to` was taken from
// the pool of the piece's job and has as many pages; kMoving.
void SwitchRam(Tables& tables, PieceId id, base::PageRun from, base::PageRun to);
// The run of the piece becomes two, of `pages` and of the rest, so that each can move by itself. REQUIRES: the piece is
// not leased, and has fewer than kRamRunsMax runs.
void SplitRun(Tables& tables, PieceId id, base::PageRun run, uint32_t pages);
// The run, of the job's pool, is taken for a move in RAM beside those of pieces (JobMoves::extra_pages), or not any
// more.
void AddMoveRun(Tables& tables, JobState& job, base::PageRun run);
void RemoveMoveRun(Tables& tables, JobState& job, base::PageRun run);
// Its moves, if it is moving, are not made: it stays where it is, and copies are thrown away when they end.
void CancelMove(Tables& tables, PieceId id);

void AddReader(Tables& tables, PieceId id);
void RemoveReader(Tables& tables, PieceId id);
// A lease or a pin on the piece ended, or it was read: it enters the eviction order at the hot end if it may be
// evicted.
void Touch(Tables& tables, PieceId id);
// It will not be used soon: it is evicted, or written ahead of need, before those that were used.
void Retire(Tables& tables, PieceId id);
// Takes the piece out of the eviction order, until the next Touch or change of state.
void Delist(Tables& tables, PieceId id);
// It was used, or its time is over: if it was prefetched, it is a clean piece like any other from now on.
void EndPrefetch(Tables& tables, PieceId id);
// From clean and unleased to on SSD only. False: the copy there may be lost with its device, so the piece is dirty now
// and will be written to another one.
bool Evict(Tables& tables, PieceId id);
// Whether Evict may be called for it: it is in RAM and on SSD, in no transfer, no lease and no waiter needs it, and it
// does not stay for now.
bool CanBeEvicted(const Tables& tables, const Piece& piece);
// Reads of its device fail, and a probe is about to tell whether it answers; until then its bytes in RAM, which have
// nowhere else to go, stay there. REQUIRES: in RAM and on SSD.
bool StaysForNow(const Tables& tables, const Piece& piece);
// Discards the bytes in RAM: the piece falls back to its SSD copy. Its room stays with the waiters that have pinned it,
// else it is freed. REQUIRES: it has an SSD copy, and is being read in or leased for writing.
void RevertToSsd(Tables& tables, PieceId id);

// A waiter needs the piece to stay where it is. False: it has as many pins as it can count.
bool Pin(Tables& tables, PieceId id);
void Unpin(Tables& tables, PieceId id);

}  // namespace tier::tiering
