// See recency.h.
#include "daemon/tiering/pieces/recency.h"

#include "daemon/base/check.h"

namespace tier::tiering {

RecencyPolicy::Part RecencyPolicy::PartOf(const List& list, bool retired) const {
  const PieceId boundary = list.newest_retired;
  const PieceId coldest_used = boundary == kNoPiece ? list.oldest : pieces_[boundary].newer;
  if (retired) return {.above = coldest_used, .newest = boundary, .oldest = list.oldest, .below = kNoPiece};
  return {.above = kNoPiece, .newest = list.newest, .oldest = coldest_used, .below = boundary};
}

// The piece below which one with this stamp belongs; kNoPiece: it is the newest of all.
PieceId RecencyPolicy::NewerNeighbour(const Part& part, uint32_t used_at) const {
  PieceId above = part.above;
  PieceId from_hot = part.newest;
  for (uint32_t step = 0; step < kSearchStepsMax; ++step) {
    if (from_hot == part.below || !Older(used_at, pieces_[from_hot].used_at)) return above;
    above = from_hot;
    from_hot = pieces_[from_hot].older;
  }
  PieceId from_cold = part.oldest;
  for (uint32_t step = 0; step < kSearchStepsMax; ++step) {
    if (Older(used_at, pieces_[from_cold].used_at)) return from_cold;
    from_cold = pieces_[from_cold].newer;
    TIER_CHECK(from_cold != part.above, "the newest piece of a part of the order is older than {}", used_at);
  }
  return from_cold;  // Between the ends: near the cold one, where it is found soonest.
}

void RecencyPolicy::InsertBelow(List& list, PieceId piece, PieceId newer) {
  const PieceId older = newer == kNoPiece ? list.newest : pieces_[newer].older;
  pieces_.Edit(piece).newer = newer;
  pieces_.Edit(piece).older = older;
  (newer == kNoPiece ? list.newest : pieces_.Edit(newer).older) = piece;
  (older == kNoPiece ? list.oldest : pieces_.Edit(older).newer) = piece;
  if (pieces_[piece].retired && older == list.newest_retired) list.newest_retired = piece;
  ++list.count;
}

void RecencyPolicy::Add(PieceId piece, EvictionOrder order) {
  List& list = lists_[static_cast<size_t>(order)];
  TIER_CHECK(!pieces_[piece].has(kListed), "piece {} is listed", Value(piece));
  pieces_.Edit(piece).set(kListed);
  const Piece& p = pieces_[piece];
  InsertBelow(list, piece, NewerNeighbour(PartOf(list, p.retired), p.used_at));
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
  if (list.newest_retired == piece) list.newest_retired = p.older;
  (p.newer == kNoPiece ? list.newest : pieces_.Edit(p.newer).older) = p.older;
  (p.older == kNoPiece ? list.oldest : pieces_.Edit(p.older).newer) = p.newer;
  p.newer = kNoPiece;
  p.older = kNoPiece;
  p.clear(kListed);
  --list.count;
}

void RecencyPolicy::MoveToHot(PieceId piece, EvictionOrder order) {
  List& list = lists_[static_cast<size_t>(order)];
  if (list.newest == piece && list.newest_retired != piece) return;
  Remove(piece, order);
  AddHot(piece, order);
}

}  // namespace tier::tiering
