// ResidentIndex: which piece lies at a place in RAM, of those that lie in one run (the others:
// scattered_ram.h). It holds nothing that is not in the pieces, and can be rebuilt from them. Engine thread only.
//
// The bucket of a run is that of its block plus its first page, so that the slots of one block lie side by side.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/hash_buckets.h"
#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class ResidentIndex {
 public:
  explicit ResidentIndex(const PieceSlab& pieces) : pieces_(pieces) {}

  // The piece whose run this is; kNoPiece: the run belongs to none.
  PieceId At(base::PageRun run) const {
    return buckets_.Find(HashOf(run), [&](PieceId id) { return pieces_[id].ram == run; });
  }
  // REQUIRES: the piece has its run, and is not in (is in).
  void Add(PieceId id) {
    buckets_.Add(id, HashOf(pieces_[id].ram), [&](PieceId other) { return HashOf(pieces_[other].ram); });
  }
  void Remove(PieceId id) { buckets_.Remove(id, HashOf(pieces_[id].ram)); }

  uint64_t size() const { return buckets_.size(); }
  uint64_t bytes() const { return buckets_.bytes(); }
  bool can_shrink() const { return buckets_.can_shrink(); }
  bool ShrinkSome() { return buckets_.ShrinkSome(); }
  void CheckInvariants() const {  // O(buckets).
    buckets_.CheckInvariants([&](PieceId id) {
      TIER_CHECK(pieces_[id].ram, "piece {} has no run", Value(id));
      return HashOf(pieces_[id].ram);
    });
  }

 private:
  static uint64_t HashOf(base::PageRun run) { return uint64_t{run.block} * 0x9e3779b1 + run.page; }

  const PieceSlab& pieces_;
  HashBuckets<PieceId> buckets_;
};

}  // namespace tier::tiering
