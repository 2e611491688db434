// See slot_starts.h.
#include "daemon/base/slot_starts.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::base {

unsigned SlotStarts::Next(unsigned from, const PageMapPool& maps) const {
  if (has_map()) return maps[map()].NextSet(from);
  unsigned next = kPagesPerBlock;
  for (unsigned i = 0; i < listed_; ++i) {
    if (pages_[i] >= from) next = std::min<unsigned>(next, pages_[i]);
  }
  return next;
}

void SlotStarts::Add(unsigned page, PageMapPool* maps) {
  TIER_CHECK(page < kPagesPerBlock && !Contains(page, *maps), "page {}", page);
  if (listed_ == kListedMax) MoveToMap(maps);
  if (has_map()) return (*maps)[map()].Set(page, 1);
  pages_[listed_++] = static_cast<uint16_t>(page);
}

void SlotStarts::Remove(unsigned page, PageMapPool* maps) {
  TIER_CHECK(Contains(page, *maps), "page {}", page);
  if (has_map()) {
    PageMap& pages = (*maps)[map()];
    pages.Clear(page, 1);
    if (pages.CountSet() <= kListedAgain) MoveToList(maps);
    return;
  }
  *std::find(pages_.begin(), pages_.end(), page) = pages_[listed_ - 1];
  --listed_;
}

void SlotStarts::MoveToMap(PageMapPool* maps) {
  const uint32_t number = maps->Allocate();
  for (unsigned i = 0; i < listed_; ++i) (*maps)[number].Set(pages_[i], 1);
  pages_[0] = static_cast<uint16_t>(number >> 16);
  pages_[1] = static_cast<uint16_t>(number);
  listed_ = kInMap;
}

void SlotStarts::MoveToList(PageMapPool* maps) {
  const uint32_t number = map();
  const PageMap& pages = (*maps)[number];
  listed_ = 0;
  for (unsigned page = pages.NextSet(0); page < kPagesPerBlock; page = pages.NextSet(page + 1)) {
    pages_[listed_++] = static_cast<uint16_t>(page);
  }
  maps->Free(number);
}

}  // namespace tier::base
