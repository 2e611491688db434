// IndexSet: a set of small numbers, of which the lowest and the highest are found at once. One bit a number, and one
// for each 64 of these: a look at up to 4,096 numbers costs two words.
//
// Engine thread only. Allocates only for a number higher than all before it. Invariant: a bit of `summary_` is set
// exactly while its word is not 0.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"

namespace tier::tiering {

class IndexSet {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t size() const { return size_; }
  uint64_t bytes() const { return (words_.capacity() + summary_.capacity()) * sizeof(uint64_t); }

  void Add(uint32_t number) {  // REQUIRES: it is not in the set.
    const uint32_t word = number / 64;
    if (word >= words_.size()) {
      words_.resize(size_t{word} + 1);
      summary_.resize(size_t{word} / 64 + 1);
    }
    TIER_CHECK((words_[word] & Bit(number)) == 0, "number {} is in a set of {}", number, size_);
    words_[word] |= Bit(number);
    summary_[word / 64] |= Bit(word);
    ++size_;
  }
  void Remove(uint32_t number) {  // REQUIRES: it is in the set.
    const uint32_t word = number / 64;
    TIER_CHECK(word < words_.size() && (words_[word] & Bit(number)) != 0, "number {} is not in a set of {}", number,
               size_);
    words_[word] &= ~Bit(number);
    if (words_[word] == 0) summary_[word / 64] &= ~Bit(word);
    --size_;
  }
  uint32_t First() const {  // kNone: it is empty.
    for (uint32_t i = 0; i < summary_.size(); ++i) {
      if (summary_[i] == 0) continue;
      const uint32_t word = i * 64 + static_cast<uint32_t>(std::countr_zero(summary_[i]));
      return word * 64 + static_cast<uint32_t>(std::countr_zero(words_[word]));
    }
    return kNone;
  }
  uint32_t FirstFrom(uint32_t number) const {  // The lowest that is not lower. kNone: there is none.
    uint32_t word = number / 64;
    if (word >= words_.size()) return kNone;
    if (const uint64_t rest = words_[word] >> (number % 64); rest != 0) {
      return number + static_cast<uint32_t>(std::countr_zero(rest));
    }
    ++word;
    for (uint32_t i = word / 64; i < summary_.size(); ++i) {
      const uint64_t rest = i == word / 64 ? summary_[i] >> (word % 64) << (word % 64) : summary_[i];
      if (rest == 0) continue;
      word = i * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      return word * 64 + static_cast<uint32_t>(std::countr_zero(words_[word]));
    }
    return kNone;
  }
  uint32_t Last() const {  // kNone: it is empty.
    for (auto i = static_cast<uint32_t>(summary_.size()); i-- != 0;) {
      if (summary_[i] == 0) continue;
      const uint32_t word = i * 64 + 63 - static_cast<uint32_t>(std::countl_zero(summary_[i]));
      return word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(words_[word]));
    }
    return kNone;
  }

 private:
  static constexpr uint64_t Bit(uint32_t number) { return uint64_t{1} << (number % 64); }

  std::vector<uint64_t> words_;
  std::vector<uint64_t> summary_;  // Of 64 words each.
  uint32_t size_ = 0;
};

}  // namespace tier::tiering
