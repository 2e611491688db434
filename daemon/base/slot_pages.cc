// See slot_pages.h.
#include "daemon/base/slot_pages.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::base {

template <typename Visit>
void SlotPages::ForEachHole(const Visit& visit) const {
  unsigned begin = 0;
  for (unsigned i = 0; i < count_; ++i) {
    const Slot slot = slots_[i];
    if (slot.begin != begin && !visit(Hole{begin, slot.begin - begin})) return;
    begin = slot.end;
  }
  if (begin != kPagesPerBlock) visit(Hole{begin, kPagesPerBlock - begin});
}

template <typename Visit>
void SlotPages::ForEachSlot(const SlotMaps& maps, const Visit& visit) {
  for (unsigned page = maps.starts.NextSet(0); page < kPagesPerBlock;) {
    const unsigned next = maps.starts.NextSet(page + 1);
    visit(page, std::min(next, maps.used.NextClear(page)));
    page = next;
  }
}

bool SlotPages::Holds(unsigned page, unsigned pages, const SlotMapsPool& maps) const {
  const unsigned end = page + pages;
  if (!in_maps_) {
    const unsigned i = IndexBehind(page);
    return i != 0 && slots_[i - 1].begin == page && slots_[i - 1].end == end;
  }
  const SlotMaps& its = maps[number()];
  return pages != 0 && its.starts.Test(page) && its.starts.NextSet(page + 1) >= end && its.used.AllSet(page, pages) &&
         (end == kPagesPerBlock || !its.used.Test(end) || its.starts.Test(end));
}

SlotPages::Hole SlotPages::HoleAt(unsigned page, const SlotMapsPool& maps) const {
  if (in_maps_) {
    const PageMap& used = maps[number()].used;
    if (used.Test(page)) return {page, 0};
    const unsigned begin = used.HoleStart(page);
    return {begin, used.NextSet(page) - begin};
  }
  const unsigned i = IndexBehind(page);
  const unsigned begin = i == 0 ? 0 : slots_[i - 1].end;
  if (begin > page) return {page, 0};
  return {begin, (i == count_ ? kPagesPerBlock : slots_[i].begin) - begin};
}

SlotPages::Hole SlotPages::BestHole(unsigned pages, const SlotMapsPool& maps) const {
  if (in_maps_) return maps[number()].used.BestHole(pages);
  Hole best;
  ForEachHole([&](Hole hole) {
    if (hole.pages >= pages && (best.pages == 0 || hole.pages < best.pages)) best = hole;
    return hole.pages != pages;
  });
  return best;
}

unsigned SlotPages::LongestHole(const SlotMapsPool& maps, unsigned enough) const {
  if (in_maps_) return maps[number()].used.LongestHole(enough);
  unsigned longest = 0;
  ForEachHole([&](Hole hole) {
    longest = std::max(longest, hole.pages);
    return longest < enough;
  });
  return longest;
}

void SlotPages::List(uint32_t block, const SlotMapsPool& maps, std::vector<PageRun>* slots) const {
  const auto append = [&](unsigned begin, unsigned end) {
    slots->push_back({block, static_cast<uint16_t>(begin), static_cast<uint16_t>(end - begin)});
  };
  if (in_maps_) return ForEachSlot(maps[number()], append);
  for (unsigned i = 0; i < count_; ++i) append(slots_[i].begin, slots_[i].end);
}

void SlotPages::Insert(unsigned index, unsigned begin, unsigned end) {
  std::copy_backward(slots_.begin() + index, slots_.begin() + count_, slots_.begin() + count_ + 1);
  slots_[index] = {static_cast<uint16_t>(begin), static_cast<uint16_t>(end)};
}

void SlotPages::Add(unsigned page, unsigned pages, SlotMapsPool* maps) {
  const unsigned end = page + pages;
  TIER_CHECK(pages != 0 && end <= kPagesPerBlock, "page {} pages {}", page, pages);
  if (!in_maps_ && count_ == kListedMax) MoveToMaps(maps);
  if (in_maps_) {
    SlotMaps& its = (*maps)[number()];
    TIER_CHECK(its.used.NoneSet(page, pages), "page {} pages {}: not free", page, pages);
    its.used.Set(page, pages);
    its.starts.Set(page, 1);
  } else {
    const unsigned i = IndexBehind(page);
    TIER_CHECK((i == 0 || slots_[i - 1].end <= page) && (i == count_ || slots_[i].begin >= end),
               "page {} pages {}: not free", page, pages);
    Insert(i, page, end);
  }
  ++count_;
}

void SlotPages::Remove(unsigned page, unsigned pages, SlotMapsPool* maps) {
  if (in_maps_) {
    SlotMaps& its = (*maps)[number()];
    its.used.Clear(page, pages);
    its.starts.Clear(page, 1);
    --count_;
    if (count_ <= kListedAgain) MoveToList(maps);
    return;
  }
  const unsigned i = IndexBehind(page);
  TIER_CHECK(i != 0 && slots_[i - 1].begin == page && slots_[i - 1].end == page + pages,
             "page {} pages {}: no such slot", page, pages);
  std::copy(slots_.begin() + i, slots_.begin() + count_, slots_.begin() + i - 1);
  slots_[--count_] = {};
}

void SlotPages::Split(unsigned page, unsigned pages, SlotMapsPool* maps) {
  if (!in_maps_ && count_ == kListedMax) MoveToMaps(maps);
  if (in_maps_) {
    (*maps)[number()].starts.Set(page + pages, 1);
  } else {
    const unsigned i = IndexBehind(page);
    TIER_CHECK(i != 0 && slots_[i - 1].begin == page && slots_[i - 1].end > page + pages,
               "page {} pages {}: no such slot", page, pages);
    Insert(i, page + pages, slots_[i - 1].end);
    slots_[i - 1].end = slots_[i].begin;
  }
  ++count_;
}

void SlotPages::MoveToMaps(SlotMapsPool* maps) {
  const uint32_t number = maps->Allocate();
  SlotMaps& its = (*maps)[number];
  for (unsigned i = 0; i < count_; ++i) {
    its.used.Set(slots_[i].begin, unsigned{slots_[i].end} - slots_[i].begin);
    its.starts.Set(slots_[i].begin, 1);
  }
  slots_[0] = {static_cast<uint16_t>(number >> 16), static_cast<uint16_t>(number)};
  in_maps_ = true;
}

void SlotPages::MoveToList(SlotMapsPool* maps) {
  const uint32_t freed = number();
  unsigned i = 0;
  slots_ = {};
  ForEachSlot((*maps)[freed], [&](unsigned begin, unsigned end) {
    slots_[i++] = {static_cast<uint16_t>(begin), static_cast<uint16_t>(end)};
  });
  TIER_CHECK(i == count_, "slots {} of {}", i, unsigned{count_});
  in_maps_ = false;
  maps->Free(freed);
}

void SlotPages::CheckInvariants(const SlotMapsPool& maps) const {
  if (!in_maps_) {
    TIER_CHECK(count_ <= kListedMax, "listed {}", unsigned{count_});
    unsigned end = 0;
    for (unsigned i = 0; i < count_; ++i) {
      TIER_CHECK(end <= slots_[i].begin && slots_[i].begin < slots_[i].end, "slot {} of {}: {} to {}", i,
                 unsigned{count_}, slots_[i].begin, slots_[i].end);
      end = slots_[i].end;
    }
    TIER_CHECK(end <= kPagesPerBlock, "end {}", end);
    TIER_CHECK(IndexBehind(kPagesPerBlock) == count_, "listed {}", unsigned{count_});
    return;
  }
  unsigned slots = 0;
  unsigned pages = 0;
  ForEachSlot(maps[number()], [&](unsigned begin, unsigned end) {
    ++slots;
    pages += end - begin;
  });
  TIER_CHECK(slots == count_ && slots > kListedAgain, "slots {} of {}", slots, unsigned{count_});
  TIER_CHECK(pages == maps[number()].used.CountSet(), "pages {} of {}", pages, maps[number()].used.CountSet());
}

}  // namespace tier::base
