// See holds.h.
#include "daemon/tiering/requests/holds.h"

#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/replace.h"

namespace tier::tiering {
namespace {

// Calls visit(id) for each piece of each item that is still there.
template <typename Visit>
void ForEachPiece(Tables& tables, const Waiter& waiter, Visit visit) {
  for (const WaitItem& item : waiter.items) {
    if (!tables.Alive(item.tensor)) continue;
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      visit(tables.tensors.PieceOf(tensor, k));
    }
  }
}

// And of the tensor whose place it waits for.
template <typename Visit>
void ForEachOfPlace(Tables& tables, const LeaseWait& wait, Visit visit) {
  if (!tables.Alive(wait.place)) return;
  const Tensor& tensor = tables.tensors[wait.place.index];
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    if (id != kNoPiece) visit(id);
  }
}

void UnpinPlace(Tables& tables, LeaseWait& wait) {
  ForEachOfPlace(tables, wait, [&](PieceId id) { Unpin(tables, id); });
  wait.place = {};
}

// Which place is to be kept may change with every lease on it.
void PinPlace(Tables& tables, const Waiter& waiter, LeaseWait& wait) {
  const TensorRef place = PlaceToKeep(tables, AskOf(tables, waiter));
  if (place == wait.place) return;
  UnpinPlace(tables, wait);
  wait.place = place;
  bool room = true;
  ForEachOfPlace(tables, wait, [&](PieceId id) { room = room && tables.pieces[id].pins < kPinsMax; });
  if (!room) wait.place = {};
  ForEachOfPlace(tables, wait, [&](PieceId id) {
    const bool pinned = Pin(tables, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), tables.pieces[id].pins);
  });
}

}  // namespace

std::optional<PieceId> PinAll(Tables& tables, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  PinPlace(tables, waiter, wait);
  if (wait.pinned) return std::nullopt;
  std::optional<PieceId> full;
  ForEachPiece(tables, waiter, [&](PieceId id) {
    if (tables.pieces[id].pins >= kPinsMax) full = id;
  });
  if (full) return full;
  ForEachPiece(tables, waiter, [&](PieceId id) {
    const bool pinned = Pin(tables, id);
    TIER_CHECK(pinned, "piece {} has {} pins", Value(id), tables.pieces[id].pins);
  });
  wait.pinned = true;
  return std::nullopt;
}

void UnpinAll(Tables& tables, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  UnpinPlace(tables, wait);
  if (!wait.pinned) return;
  wait.pinned = false;
  ForEachPiece(tables, waiter, [&](PieceId id) { Unpin(tables, id); });
}

void ClaimAll(Tables& tables, Waiter& waiter) {
  std::get<LeaseWait>(waiter.kind).claims = true;
  ForEachPiece(tables, waiter, [&](PieceId id) {
    waiter.job->claims.Claim(waiter.number, id);
    tables.pieces.Edit(id).set(kWanted);
  });
}

void DropClaims(Tables& tables, Waiter& waiter) {
  LeaseWait& wait = std::get<LeaseWait>(waiter.kind);
  if (!wait.claims) return;
  wait.claims = false;
  ForEachPiece(tables, waiter, [&](PieceId id) {
    if (!waiter.job->claims.Drop(waiter.number, id)) return;
    tables.pieces.Edit(id).clear(kWanted);
    tables.waits.OnPieceChanged(id);  // Later requests may pass.
  });
}

}  // namespace tier::tiering
