// PieceSets: sets of pieces of one tensor each, by number. A record keeps a PieceSet, which has no pointer; its bitmap
// is kept here. Engine thread only.
//
// A bitmap is a sparse array (sparse_arrays.h): a tensor of at most 32 pieces needs no memory beside the record.
//
// Invariant: count = bits set <= capacity.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/sparse_arrays.h"

namespace tier::tiering {

struct PieceSet {
  SparseArray words;
  uint32_t capacity = 0;
  uint32_t count = 0;

  bool empty() const { return count == 0; }
};

class PieceSets {
 public:
  // The most memory that the bitmap of a set of this capacity takes.
  static constexpr uint64_t BytesMax(uint64_t capacity) {
    return SparseArrays::BytesMax((capacity + kWordBits - 1) / kWordBits);
  }

  // Makes the set empty, for pieces below `capacity`.
  void Reset(PieceSet* set, uint32_t capacity) {
    words_.Clear(&set->words);
    *set = {.words = {.size = capacity / kWordBits + (capacity % kWordBits != 0 ? 1 : 0)}, .capacity = capacity};
  }
  // REQUIRES: number < capacity. False: it was in the set already.
  bool Add(PieceSet* set, uint32_t number) {
    TIER_CHECK(number < set->capacity, "piece {} of {}", number, set->capacity);
    const uint32_t word = words_.Get(set->words, number / kWordBits);
    const uint32_t bit = 1u << (number % kWordBits);
    if ((word & bit) != 0) return false;
    words_.Set(&set->words, number / kWordBits, word | bit);
    ++set->count;
    return true;
  }
  bool Contains(const PieceSet& set, uint32_t number) const {
    if (number >= set.capacity) return false;
    return (words_.Get(set.words, number / kWordBits) >> (number % kWordBits) & 1) != 0;
  }
  uint32_t nodes_used() const { return words_.nodes_used(); }
  uint64_t bytes() const { return words_.bytes(); }
  bool can_shrink() const { return words_.can_shrink(); }
  bool ShrinkOne() { return words_.ShrinkOne(); }

 private:
  static constexpr uint32_t kWordBits = 32;

  SparseArrays words_;
};

}  // namespace tier::tiering
