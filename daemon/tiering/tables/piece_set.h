// PieceSet: some pieces of one tensor, by number: a bitmap and its count. Thread-compatible.
//
// A tensor of at most 64 pieces needs no memory beside the object; a larger one takes a bit for each piece, which is
// 1/512 of its piece records.
//
// Invariant: count() == bits set <= capacity().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "daemon/base/check.h"

namespace tier::tiering {

class PieceSet {
 public:
  // Empty, for pieces below `capacity`.
  void Reset(uint32_t capacity) {
    many_.reset();
    few_ = 0;
    capacity_ = capacity;
    count_ = 0;
  }
  // REQUIRES: number < capacity(). False: it was in the set already.
  bool Add(uint32_t number) {
    TIER_CHECK(number < capacity_, "piece {} of {}", number, capacity_);
    if (capacity_ > kWordBits && many_ == nullptr) many_ = std::make_unique<uint64_t[]>(word_count());
    uint64_t& word = words()[number / kWordBits];
    const uint64_t bit = uint64_t{1} << (number % kWordBits);
    const bool fresh = (word & bit) == 0;
    word |= bit;
    count_ += fresh ? 1 : 0;
    return fresh;
  }
  bool Contains(uint32_t number) const {
    if (number >= capacity_ || count_ == 0) return false;
    return (words()[number / kWordBits] >> (number % kWordBits) & 1) != 0;
  }
  uint32_t count() const { return count_; }
  uint32_t capacity() const { return capacity_; }
  bool empty() const { return count_ == 0; }

 private:
  static constexpr uint32_t kWordBits = 64;

  size_t word_count() const { return (size_t{capacity_} + kWordBits - 1) / kWordBits; }
  uint64_t* words() { return many_ == nullptr ? &few_ : many_.get(); }
  const uint64_t* words() const { return many_ == nullptr ? &few_ : many_.get(); }

  std::unique_ptr<uint64_t[]> many_;  // With more than kWordBits pieces, from the first Add on.
  uint64_t few_ = 0;
  uint32_t capacity_ = 0;
  uint32_t count_ = 0;
};

}  // namespace tier::tiering
