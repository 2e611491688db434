// See holds.h.
#include "daemon/tiering/requests/holds.h"

#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/replace.h"

namespace tier::tiering {
namespace {

// Calls visit(id, piece) for each piece of each item that is still there.
template <typename Visit>
void ForEachPiece(Core& core, const Waiter& waiter, Visit visit) {
  for (const WaitItem& item : waiter.items) {
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      visit(tensor.piece(k), core.pieces[tensor.piece(k)]);
    }
  }
}

// And of the tensor whose place it waits for.
template <typename Visit>
void ForEachOfPlace(Core& core, const LeaseWait& wait, Visit visit) {
  if (!core.Alive(wait.place)) return;
  const Tensor& tensor = core.tensors[wait.place.slot];
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    if (id != kNoPiece) visit(id, core.pieces[id]);
  }
}

void UnpinPlace(Core& core, LeaseWait& wait) {
  ForEachOfPlace(core, wait, [&](PieceId id, const Piece&) { Unpin(core, id); });
  wait.place = {};
}

// Which place is to be kept may change with every lease on it.
void PinPlace(Core& core, const Waiter& waiter, LeaseWait& wait) {
  const TensorRef place = PlaceToKeep(core, AskOf(core, waiter));
  if (place == wait.place) return;
  UnpinPlace(core, wait);
  wait.place = place;
  bool room = true;
  ForEachOfPlace(core, wait, [&](PieceId, const Piece& piece) { room = room && piece.pins < kPinsMax; });
  if (!room) wait.place = {};
  ForEachOfPlace(core, wait, [&](PieceId id, const Piece&) {
    const bool pinned = Pin(core, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), core.pieces[id].pins);
  });
}

}  // namespace

bool PinAll(Core& core, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  PinPlace(core, waiter, wait);
  if (wait.pinned) return true;
  bool room = true;
  ForEachPiece(core, waiter, [&](PieceId, const Piece& piece) { room = room && piece.pins < kPinsMax; });
  if (!room) return false;
  ForEachPiece(core, waiter, [&](PieceId id, const Piece&) {
    const bool pinned = Pin(core, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), core.pieces[id].pins);
  });
  wait.pinned = true;
  return true;
}

void UnpinAll(Core& core, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  UnpinPlace(core, wait);
  if (!wait.pinned) return;
  wait.pinned = false;
  ForEachPiece(core, waiter, [&](PieceId id, const Piece&) { Unpin(core, id); });
}

void ClaimAll(Core& core, Waiter& waiter) {
  std::get<LeaseWait>(waiter.kind).claims = true;
  ForEachPiece(core, waiter, [&](PieceId id, Piece& piece) {
    waiter.job->claims.Claim(waiter.number, id);
    piece.set(kWanted);
  });
}

void DropClaims(Core& core, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  if (!wait.claims) return;
  wait.claims = false;
  ForEachPiece(core, waiter, [&](PieceId id, Piece& piece) {
    if (!waiter.job->claims.Drop(waiter.number, id)) return;
    piece.clear(kWanted);
    core.waits.OnPieceChanged(piece);  // Later requests may pass.
  });
}

}  // namespace tier::tiering
