// RecencyPolicy: the least recently used piece is evicted first. Three lists are threaded through the pieces
// themselves.
//
// One that is retired gets a stamp that is older than those of all pieces in use, and keeps its place among the
// retired.
//
// A piece that changes lists (written out: dirty → clean) keeps its place in time: Add searches for that place from
// both ends, a bounded number of steps, so that the order is exact at the ends and nearly exact in the middle.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class RecencyPolicy final : public EvictionPolicy {
 public:
  static constexpr uint32_t kSearchStepsMax = 32;
  static constexpr uint32_t kRetiredAge = 1u << 30;  // In uses. A piece in RAM is used again before, or as old itself.

  explicit RecencyPolicy(PieceSlab& pieces) : pieces_(pieces) {}
  void Add(PieceId piece, EvictionOrder order) override;
  void AddHot(PieceId piece, EvictionOrder order) override;
  void Remove(PieceId piece, EvictionOrder order) override;
  void Use(PieceId piece) override { pieces_.Edit(piece).used_at = ++clock_; }
  void Retire(PieceId piece) override { pieces_.Edit(piece).used_at = ++clock_ - kRetiredAge; }
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
    uint64_t count = 0;
  };
  // Stamps wrap: the older of two is the one from which the other lies ahead.
  static bool Older(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }
  PieceId NewerNeighbour(const List& list, uint32_t used_at) const;
  void InsertBelow(List& list, PieceId piece, PieceId newer);

  PieceSlab& pieces_;
  std::array<List, kEvictionOrders> lists_;
  uint32_t clock_ = 0;
};

}  // namespace tier::tiering
