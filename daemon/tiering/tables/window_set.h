// WindowSet: a set of windows, as one bit for each index up to the highest that was ever in it. Engine thread only.
//
// Indices of windows are small numbers that are used again (memory/window_source.h), so the set stays short. It never
// shrinks: no allocation in steady state.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/units.h"

namespace tier::tiering {

class WindowSet {
 public:
  bool Contains(WindowIndex window) const {
    const uint32_t at = tier::Value(window);
    return at / kBits < words_.size() && (words_[at / kBits] >> (at % kBits) & 1) != 0;
  }
  // It may be there already.
  void Add(WindowIndex window) {
    const uint32_t at = tier::Value(window);
    if (at / kBits >= words_.size()) words_.resize(at / kBits + 1);
    words_[at / kBits] |= uint64_t{1} << (at % kBits);
  }
  void AddAll(const WindowSet& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    std::ranges::transform(other.words_, words_, words_.begin(), std::bit_or());
  }
  // It need not be there.
  void Remove(WindowIndex window) {
    const uint32_t at = tier::Value(window);
    if (at / kBits < words_.size()) words_[at / kBits] &= ~(uint64_t{1} << (at % kBits));
  }
  void Clear() { std::ranges::fill(words_, 0); }

  bool empty() const {
    return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
  }
  // In the order of their indices. `visit` may remove windows from the set: it is called for the windows that were
  // there when it reached their word.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(WindowIndex{static_cast<uint32_t>(i * kBits) + static_cast<uint32_t>(std::countr_zero(word))});
      }
    }
  }

 private:
  static constexpr uint32_t kBits = 64;  // Of a word.
  std::vector<uint64_t> words_;
};

}  // namespace tier::tiering
