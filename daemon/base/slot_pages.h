// SlotPages: the slots of one block: which of its pages are used, and where each slot begins and ends, which tells a
// double or partial free from a right one.
//
// The idea: few slots are a sorted list of their pages, many are two maps of the block's pages, of 128 bytes together,
// from a pool that all blocks share. A block goes to maps with its slot 10 and back to a list with 8 slots left: one
// that goes up and down by a slot does not change each time. The numbers are such that with the other 26 bytes of a
// slot block, 8 of its index and 60 of the free maps and windows (the most where 64 owners share 64 GiB), every block
// takes less than 128 + 16 × slots bytes. It comes nearest to them with 1 slot, and with 9 in maps.
//
// Invariants: listed slots do not overlap, and are in the order of their pages; a block with maps has more than
// kListedAgain slots. Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/base/page_map.h"
#include "daemon/base/page_run.h"
#include "daemon/base/record_pool.h"

namespace tier::base {

struct SlotMaps {
  PageMap used;
  PageMap starts;  // The first pages of slots.
};
using SlotMapsPool = RecordPool<SlotMaps>;

class SlotPages {
 public:
  using Hole = PageMap::Hole;
  static constexpr unsigned kListedMax = 9;
  static constexpr unsigned kListedAgain = 8;

  unsigned count() const { return count_; }  // Slots.
  bool has_maps() const { return in_maps_; }
  bool Holds(unsigned page, unsigned pages, const SlotMapsPool& maps) const;  // Exactly this slot.
  // The hole that this page is in. pages == 0: it is used.
  Hole HoleAt(unsigned page, const SlotMapsPool& maps) const;
  // The smallest hole of at least `pages`; the lowest of equals. pages == 0: there is none.
  Hole BestHole(unsigned pages, const SlotMapsPool& maps) const;
  // The length of the longest hole; stops looking at `enough`.
  unsigned LongestHole(const SlotMapsPool& maps, unsigned enough = kPagesPerBlock) const;
  // Appends the slots, as runs in this block, in the order of their pages.
  void List(uint32_t block, const SlotMapsPool& maps, std::vector<PageRun>* slots) const;

  void Add(unsigned page, unsigned pages, SlotMapsPool* maps);     // REQUIRES: these pages are free.
  void Remove(unsigned page, unsigned pages, SlotMapsPool* maps);  // REQUIRES: Holds(page, pages).
  // The slot that begins at `page` and is longer becomes two, of `pages` and of the rest.
  void Split(unsigned page, unsigned pages, SlotMapsPool* maps);

  void CheckInvariants(const SlotMapsPool& maps) const;

 private:
  struct Slot {
    uint16_t begin = UINT16_MAX;  // Behind every page where no slot is listed.
    uint16_t end = UINT16_MAX;
  };

  uint32_t number() const { return uint32_t{slots_[0].begin} << 16 | slots_[0].end; }
  unsigned IndexBehind(unsigned page) const {  // Of the first listed slot that begins behind `page`.
    unsigned before = 0;  // Counted over all, as a branch that depends on the page would be predicted badly.
    for (const Slot& slot : slots_) before += slot.begin <= page ? 1 : 0;
    return before;
  }
  void Insert(unsigned index, unsigned begin, unsigned end);
  // Calls visit(hole) for the holes among the listed slots, in order, until it returns false.
  template <typename Visit>
  void ForEachHole(const Visit& visit) const;
  template <typename Visit>
  static void ForEachSlot(const SlotMaps& maps, const Visit& visit);
  void MoveToMaps(SlotMapsPool* maps);
  void MoveToList(SlotMapsPool* maps);

  uint16_t count_ : 15 = 0;
  bool in_maps_ : 1 = false;
  std::array<Slot, kListedMax> slots_ = {};  // In maps: the first is their number.
};
static_assert(sizeof(SlotPages) == 38);

}  // namespace tier::base
