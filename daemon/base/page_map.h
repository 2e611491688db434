// PageMap: the 512 pages of one block as bits, and the runs ("holes") of clear ones among them.
// Thread-compatible.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "proto/units.h"

namespace tier::base {

class PageMap {
 public:
  static constexpr unsigned kPages = kPagesPerBlock;

  bool Test(unsigned page) const { return (words_[page / 64] >> (page % 64) & 1) != 0; }
  void Set(unsigned page, unsigned count) {
    ForEachWord(page, count, [this](unsigned w, uint64_t mask) {
      words_[w] |= mask;
      return true;
    });
  }
  void Clear(unsigned page, unsigned count) {
    ForEachWord(page, count, [this](unsigned w, uint64_t mask) {
      words_[w] &= ~mask;
      return true;
    });
  }
  bool AllSet(unsigned page, unsigned count) const {
    return ForEachWord(page, count, [this](unsigned w, uint64_t mask) { return (words_[w] & mask) == mask; });
  }
  bool NoneSet(unsigned page, unsigned count) const {
    return ForEachWord(page, count, [this](unsigned w, uint64_t mask) { return (words_[w] & mask) == 0; });
  }
  // The lowest set (clear) page that is not below `from`; kPages if there is none.
  unsigned NextSet(unsigned from) const { return Next(from, 0); }
  unsigned NextClear(unsigned from) const { return Next(from, ~uint64_t{0}); }
  // One past the highest set page below `before`; 0 if there is none: where the hole that ends there begins.
  unsigned HoleStart(unsigned before) const {
    for (unsigned end = before; end != 0;) {
      const unsigned w = (end - 1) / 64;
      const uint64_t below = words_[w] & (~uint64_t{0} >> (63 - (end - 1) % 64));
      if (below != 0) return w * 64 + 64 - static_cast<unsigned>(std::countl_zero(below));
      end = w * 64;
    }
    return 0;
  }
  unsigned CountSet() const {
    unsigned count = 0;
    for (const uint64_t word : words_) count += static_cast<unsigned>(std::popcount(word));
    return count;
  }

  struct Hole {
    unsigned page = kPages;
    unsigned pages = 0;
  };
  // The smallest hole of at least `pages`; the lowest of equals. pages == 0 in the answer: none.
  Hole BestHole(unsigned pages) const;
  // The length of the longest hole; stops looking at `enough`.
  unsigned LongestHole(unsigned enough = kPages) const;

 private:
  static constexpr unsigned kWords = kPages / 64;

  // Calls visit(word, mask) over the range until it returns false; whether it never did.
  template <typename Visit>
  static bool ForEachWord(unsigned page, unsigned count, Visit visit) {
    while (count != 0) {
      const unsigned bit = page % 64;
      const unsigned here = count < 64 - bit ? count : 64 - bit;
      if (!visit(page / 64, (~uint64_t{0} >> (64 - here)) << bit)) return false;
      page += here;
      count -= here;
    }
    return true;
  }
  unsigned Next(unsigned from, uint64_t flip) const {
    if (from >= kPages) return kPages;
    unsigned w = from / 64;
    uint64_t word = (words_[w] ^ flip) & (~uint64_t{0} << (from % 64));
    while (word == 0) {
      if (++w == kWords) return kPages;
      word = words_[w] ^ flip;
    }
    return w * 64 + static_cast<unsigned>(std::countr_zero(word));
  }

  std::array<uint64_t, kWords> words_{};
};

inline PageMap::Hole PageMap::BestHole(unsigned pages) const {
  Hole best{kPages, 0};
  for (unsigned page = NextClear(0); page < kPages;) {
    const unsigned end = NextSet(page);
    const unsigned length = end - page;
    if (length == pages) return {page, length};
    if (length > pages && (best.pages == 0 || length < best.pages)) best = {page, length};
    page = NextClear(end);
  }
  return best;
}

inline unsigned PageMap::LongestHole(unsigned enough) const {
  unsigned longest = 0;
  for (unsigned page = NextClear(0); page < kPages && longest < enough;) {
    const unsigned end = NextSet(page);
    if (end - page > longest) longest = end - page;
    page = NextClear(end);
  }
  return longest;
}

}  // namespace tier::base
