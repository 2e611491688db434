// RecencyPolicy: the least recently used piece is evicted first. Three lists are threaded through the pieces
// themselves. The cold part of each are the pieces that were retired, in the order of that.
//
// A piece that changes lists (written out: dirty → clean) keeps its part and its place in time: Add searches for that
// place from both ends of the part, a bounded number of steps, so that the order is exact at the ends and nearly exact
// in the middle.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class RecencyPolicy final : public EvictionPolicy {
 public:
  static constexpr uint32_t kSearchStepsMax = 32;

  explicit RecencyPolicy(PieceSlab& pieces) : pieces_(pieces) {}
  void Add(PieceId piece, EvictionOrder order) override;
  void AddHot(PieceId piece, EvictionOrder order) override;
  void Remove(PieceId piece, EvictionOrder order) override;
  void Use(PieceId piece) override { Stamp(piece, false); }
  void Retire(PieceId piece) override { Stamp(piece, true); }
  void MoveToHot(PieceId piece, EvictionOrder order) override;
  PieceId Coldest(EvictionOrder order) const override { return lists_[static_cast<size_t>(order)].oldest; }
  PieceId Warmer(PieceId piece) const override { return pieces_[piece].newer; }
  PieceId Hottest(EvictionOrder order) const override { return lists_[static_cast<size_t>(order)].newest; }
  PieceId Colder(PieceId piece) const override { return pieces_[piece].older; }
  uint64_t count(EvictionOrder order) const override { return lists_[static_cast<size_t>(order)].count; }
  void Step(uint64_t) override {}

 private:
  struct List {
    PieceId newest = kNoPiece;
    PieceId oldest = kNoPiece;
    PieceId newest_retired = kNoPiece;  // Until it is removed, also when it was used since.
    uint64_t count = 0;
  };
  // Of a list, between two neighbours, both of them not in it.
  struct Part {
    PieceId above = kNoPiece;
    PieceId newest = kNoPiece;
    PieceId oldest = kNoPiece;
    PieceId below = kNoPiece;
  };
  // Stamps wrap: the older of two is the one from which the other lies ahead.
  static bool Older(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }
  void Stamp(PieceId piece, bool retired) {
    Piece& p = pieces_.Edit(piece);
    p.used_at = ++clock_;
    p.retired = retired;
  }
  Part PartOf(const List& list, bool retired) const;
  PieceId NewerNeighbour(const Part& part, uint32_t used_at) const;
  void InsertBelow(List& list, PieceId piece, PieceId newer);

  PieceSlab& pieces_;
  std::array<List, kEvictionOrders> lists_;
  uint32_t clock_ = 0;
};

}  // namespace tier::tiering
