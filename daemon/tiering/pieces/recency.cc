// See recency.h.
#include "daemon/tiering/pieces/recency.h"

#include "daemon/base/check.h"

namespace tier::tiering {

// The piece below which one with this stamp belongs; kNoPiece: it is the newest.
PieceId RecencyPolicy::NewerNeighbour(const List& list, uint32_t used_at) const {
  PieceId above = kNoPiece;
  PieceId from_hot = list.newest;
  for (uint32_t step = 0; step < kSearchStepsMax; ++step) {
    if (from_hot == kNoPiece || !Older(used_at, pieces_[from_hot].used_at)) return above;
    above = from_hot;
    from_hot = pieces_[from_hot].older;
  }
  PieceId from_cold = list.oldest;
  for (uint32_t step = 0; step < kSearchStepsMax; ++step) {
    if (Older(used_at, pieces_[from_cold].used_at)) return from_cold;
    from_cold = pieces_[from_cold].newer;
    TIER_CHECK(from_cold != kNoPiece, "the newest of {} pieces is older than {}", list.count, used_at);
  }
  return from_cold;  // Between the ends: near the cold one, where it is found soonest.
}

void RecencyPolicy::InsertBelow(List& list, PieceId piece, PieceId newer) {
  const PieceId older = newer == kNoPiece ? list.newest : pieces_[newer].older;
  pieces_.Edit(piece).newer = newer;
  pieces_.Edit(piece).older = older;
  (newer == kNoPiece ? list.newest : pieces_.Edit(newer).older) = piece;
  (older == kNoPiece ? list.oldest : pieces_.Edit(older).newer) = piece;
  ++list.count;
}

void RecencyPolicy::Add(PieceId piece, EvictionOrder order) {
  List& list = lists_[static_cast<size_t>(order)];
  TIER_CHECK(!pieces_[piece].has(kListed), "piece {} is listed", Value(piece));
  pieces_.Edit(piece).set(kListed);
  InsertBelow(list, piece, NewerNeighbour(list, pieces_[piece].used_at));
}

void RecencyPolicy::AddHot(PieceId piece, EvictionOrder order) {
  TIER_CHECK(!pieces_[piece].has(kListed), "piece {} is listed", Value(piece));
  pieces_.Edit(piece).set(kListed);
  InsertBelow(lists_[static_cast<size_t>(order)], piece, kNoPiece);
}

void RecencyPolicy::Remove(PieceId piece, EvictionOrder order) {
  List& list = lists_[static_cast<size_t>(order)];
  Piece& p = pieces_.Edit(piece);
  TIER_CHECK(p.has(kListed) && list.count != 0, "piece {} count {}", Value(piece), list.count);
  (p.newer == kNoPiece ? list.newest : pieces_.Edit(p.newer).older) = p.older;
  (p.older == kNoPiece ? list.oldest : pieces_.Edit(p.older).newer) = p.newer;
  p.newer = kNoPiece;
  p.older = kNoPiece;
  p.clear(kListed);
  --list.count;
}

void RecencyPolicy::MoveToHot(PieceId piece, EvictionOrder order) {
  List& list = lists_[static_cast<size_t>(order)];
  if (list.newest == piece) return;
  Remove(piece, order);
  AddHot(piece, order);
}

}  // namespace tier::tiering
