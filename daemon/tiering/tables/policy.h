// EvictionPolicy: the order in which a job's pieces leave RAM. One per job; it decides the order only.
//
// Three orders are kept: clean pieces, which can be dropped at once; clean ones that were prefetched and not used yet,
// which are kept for that use; and dirty ones, which must be written first.
// RecencyPolicy (recency.h) orders by the last use; a policy that knows a job's step order could use the next. Engine
// thread only. No allocation in Use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/slab.h"

namespace tier::tiering {

using PieceSlab = Slab<Piece, PieceId, 4096>;

enum class EvictionOrder : uint8_t { kClean, kKept, kDirty };
inline constexpr size_t kEvictionOrders = 3;

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Adds the piece at the position of its last use. REQUIRES: in no order.
  virtual void Add(PieceId piece, EvictionOrder order) = 0;
  virtual void AddHot(PieceId piece, EvictionOrder order) = 0;     // The same, after Use: nothing was used later.
  virtual void Remove(PieceId piece, EvictionOrder order) = 0;     // REQUIRES: in that order.
  virtual void Use(PieceId piece) = 0;                             // It was used just now. Also for pieces in no order.
  virtual void MoveToHot(PieceId piece, EvictionOrder order) = 0;  // After Use, when it is in an order.
  // It will not be used soon: from now on, until Use, it is colder than all that were used. REQUIRES: in no order.
  virtual void Retire(PieceId piece) = 0;
  virtual PieceId Coldest(EvictionOrder order) const = 0;          // kNoPiece: none.
  virtual PieceId Warmer(PieceId piece) const = 0;                 // The next after it in its order.
  virtual PieceId Hottest(EvictionOrder order) const = 0;          // kNoPiece: none.
  virtual PieceId Colder(PieceId piece) const = 0;                 // The one before it in its order.
  virtual uint64_t count(EvictionOrder order) const = 0;
  virtual void Step(uint64_t step) = 0;  // A step marker of the job.
};

}  // namespace tier::tiering
