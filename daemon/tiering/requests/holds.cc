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
void ForEachOfPlace(Core& core, const Waiter& waiter, Visit visit) {
  if (!core.Alive(waiter.place)) return;
  const Tensor& tensor = core.tensors[waiter.place.slot];
  for (uint32_t k = 0; k < tensor.piece_count; ++k) visit(tensor.piece(k), core.pieces[tensor.piece(k)]);
}

void UnpinPlace(Core& core, Waiter& waiter) {
  ForEachOfPlace(core, waiter, [&](PieceId id, const Piece&) { Unpin(core, id); });
  waiter.place = {};
}

// Which place is to be kept may change with every lease on it.
void PinPlace(Core& core, Waiter& waiter) {
  const TensorRef place = PlaceToKeep(core, AskOf(core, waiter));
  if (place.slot == waiter.place.slot && place.salt == waiter.place.salt) return;
  UnpinPlace(core, waiter);
  waiter.place = place;
  bool room = true;
  ForEachOfPlace(core, waiter, [&](PieceId, const Piece& piece) { room = room && piece.pins < UINT16_MAX / 2; });
  if (!room) waiter.place = {};
  ForEachOfPlace(core, waiter, [&](PieceId id, const Piece&) {
    const bool pinned = Pin(core, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), core.pieces[id].pins);
  });
}

}  // namespace

bool PinAll(Core& core, Waiter& waiter) {
  PinPlace(core, waiter);
  if (waiter.pinned) return true;
  bool room = true;
  ForEachPiece(core, waiter, [&](PieceId, const Piece& piece) { room = room && piece.pins < UINT16_MAX / 2; });
  if (!room) return false;
  ForEachPiece(core, waiter, [&](PieceId id, const Piece&) {
    const bool pinned = Pin(core, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), core.pieces[id].pins);
  });
  waiter.pinned = true;
  return true;
}

void UnpinAll(Core& core, Waiter& waiter) {
  UnpinPlace(core, waiter);
  if (!waiter.pinned) return;
  waiter.pinned = false;
  ForEachPiece(core, waiter, [&](PieceId id, const Piece&) { Unpin(core, id); });
}

void ClaimAll(Core& core, Waiter& waiter) {
  if (waiter.claims) return;
  waiter.claims = true;
  ForEachPiece(core, waiter, [&](PieceId id, Piece& piece) {
    waiter.job->claims.Claim(waiter.number, id);
    piece.set(kWanted);
  });
}

void DropClaims(Core& core, Waiter& waiter) {
  if (!waiter.claims) return;
  waiter.claims = false;
  ForEachPiece(core, waiter, [&](PieceId id, Piece& piece) {
    if (waiter.job->claims.Drop(waiter.number, id)) piece.clear(kWanted);
  });
}

}  // namespace tier::tiering
