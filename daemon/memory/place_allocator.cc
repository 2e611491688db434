// Free ranges in one ordered set for each power of two.
#include "daemon/memory/place_allocator.h"

#include <bit>
#include <map>

#include "daemon/base/check.h"

namespace tier::memory {

size_t PlaceAllocator::OrderOf(uint64_t size_bytes) {
  TIER_CHECK(std::has_single_bit(size_bytes) && size_bytes >= kWindowSizeMin && size_bytes <= kWindowSizeMax,
             "{} bytes", size_bytes);
  return static_cast<size_t>(std::countr_zero(size_bytes / kWindowSizeMin));
}

PlaceAllocator::PlaceAllocator(uint64_t space_bytes, uint64_t largest_bytes)
    : space_bytes_(space_bytes), free_(OrderOf(largest_bytes) + 1) {
  TIER_CHECK(space_bytes % largest_bytes == 0, "a space of {} bytes in ranges of {}", space_bytes, largest_bytes);
  for (uint64_t place = 0; place < space_bytes; place += largest_bytes) free_.back().insert(free_.back().end(), place);
}

std::optional<uint64_t> PlaceAllocator::TryTake(uint64_t size_bytes) {
  const size_t wanted = OrderOf(size_bytes);
  TIER_CHECK(wanted < free_.size(), "a window of {} bytes where {} is the largest", size_bytes,
             SizeOf(free_.size() - 1));
  size_t order = wanted;
  while (order < free_.size() && free_[order].empty()) ++order;
  if (order == free_.size()) return std::nullopt;
  const uint64_t place = *free_[order].begin();
  free_[order].erase(free_[order].begin());
  while (order != wanted) {
    --order;
    free_[order].insert(place + SizeOf(order));
  }
  taken_bytes_ += size_bytes;
  return place;
}

void PlaceAllocator::Free(uint64_t place, uint64_t size_bytes) {
  size_t order = OrderOf(size_bytes);
  TIER_CHECK(place % size_bytes == 0 && place < space_bytes_ && size_bytes <= taken_bytes_ && !AnyFree(place, order),
             "no window of {} bytes lies at {}", size_bytes, place);
  taken_bytes_ -= size_bytes;
  while (order + 1 < free_.size()) {
    const auto buddy = free_[order].find(place ^ SizeOf(order));
    if (buddy == free_[order].end()) break;
    free_[order].erase(buddy);
    place &= ~SizeOf(order);
    ++order;
  }
  free_[order].insert(place);
}

// Whether some of this range is free.
bool PlaceAllocator::AnyFree(uint64_t place, size_t order) const {
  for (size_t other = 0; other < free_.size(); ++other) {
    const auto at = free_[other].lower_bound(place & ~(SizeOf(other) - 1));
    if (at != free_[other].end() && *at < place + SizeOf(order)) return true;
  }
  return false;
}

void PlaceAllocator::CheckInvariants() const {
  std::map<uint64_t, uint64_t> ranges;
  uint64_t free = 0;
  for (size_t order = 0; order < free_.size(); ++order) {
    for (const uint64_t place : free_[order]) {
      TIER_CHECK(place % SizeOf(order) == 0, "a range of {} bytes at {}", SizeOf(order), place);
      TIER_CHECK(ranges.emplace(place, SizeOf(order)).second, "place {} is free twice", place);
      TIER_CHECK(order + 1 == free_.size() || !free_[order].contains(place ^ SizeOf(order)),
                 "place {} and its buddy of {} bytes are both free", place, SizeOf(order));
      free += SizeOf(order);
    }
  }
  TIER_CHECK(free + taken_bytes_ == space_bytes_, "{} bytes are free and {} taken, of {}", free, taken_bytes_,
             space_bytes_);
  uint64_t end = 0;
  for (const auto& [place, size] : ranges) {
    TIER_CHECK(place >= end, "a free range of {} bytes at {}, before {} where another one ends", size, place, end);
    end = place + size;
  }
  TIER_CHECK(end <= space_bytes_, "ranges end at {} of {}", end, space_bytes_);
}

}  // namespace tier::memory
