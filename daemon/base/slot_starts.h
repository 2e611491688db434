// SlotStarts: the first pages of the slots of one block: what tells a double or partial free from a right one.
//
// The idea: few slots are listed, many are a map of the block's pages, of 64 bytes, from a pool that all blocks share.
// So a block with one slot costs 14 bytes, and one with many 64 more. Between kListedAgain and kListedMax slots a block
// stays as it is, so that one that goes up and down by a slot does not change each time.
// Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/base/page_map.h"
#include "daemon/base/record_pool.h"

namespace tier::base {

using PageMapPool = RecordPool<PageMap>;

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
