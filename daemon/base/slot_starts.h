// SlotStarts: the first pages of the slots of one block: what tells a double or partial free from a right one.
//
// The idea: few slots are listed, many are a map of the block's pages, of 64 bytes, from a pool that all blocks share.
// So a block with one slot costs 14 bytes, and one with many 64 more. Between kListedAgain and kListedMax slots a block
// stays as it is, so that one that goes up and down by a slot does not change each time.
// Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/base/chunked_array.h"
#include "daemon/base/page_map.h"

namespace tier::base {

// Page maps under numbers. No allocation in steady state.
class PageMapPool {
 public:
  uint32_t Allocate();         // An empty one.
  void Free(uint32_t number);  // REQUIRES: in use.
  PageMap& operator[](uint32_t number) { return maps_[number]; }
  const PageMap& operator[](uint32_t number) const { return maps_[number]; }
  uint32_t used() const { return maps_.size() - static_cast<uint32_t>(unused_.size()); }

 private:
  ChunkedArray<PageMap> maps_;
  std::vector<uint32_t> unused_;
};

class SlotStarts {
 public:
  static constexpr unsigned kListedMax = 6;
  static constexpr unsigned kListedAgain = 3;

  bool Contains(unsigned page, const PageMapPool& maps) const { return Next(page, maps) == page; }
  // The lowest that is not below `from`; kPagesPerBlock if there is none.
  unsigned Next(unsigned from, const PageMapPool& maps) const;
  void Add(unsigned page, PageMapPool* maps);     // REQUIRES: not contained.
  void Remove(unsigned page, PageMapPool* maps);  // REQUIRES: contained.
  bool has_map() const { return listed_ == kInMap; }

 private:
  static constexpr uint8_t kInMap = UINT8_MAX;

  uint32_t map() const { return uint32_t{pages_[0]} << 16 | pages_[1]; }
  void MoveToMap(PageMapPool* maps);
  void MoveToList(PageMapPool* maps);

  uint8_t listed_ = 0;  // So many of pages_, in no order. kInMap: the first two are the number of a map.
  std::array<uint16_t, kListedMax> pages_ = {};
};

}  // namespace tier::base
