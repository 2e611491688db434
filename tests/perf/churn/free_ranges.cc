#include "tests/perf/churn/free_ranges.h"

#include <iterator>

#include "daemon/base/check.h"

namespace tier::churn {

FreeRanges::FreeRanges(uint64_t pages, Index* index) : ranges_{{0, pages}}, index_(index), free_pages_(pages) {
  index_->Add({.first = 0, .pages = pages});
}

void FreeRanges::Take(Range range, uint64_t pages) {
  const auto found = ranges_.find(range.first);
  TIER_CHECK(found != ranges_.end() && found->second == range.pages && pages != 0 && pages <= range.pages,
             "{} pages of {} at {}", pages, range.pages, range.first);
  index_->Remove(range);
  ranges_.erase(found);
  if (const Range rest{range.first + pages, range.pages - pages}; rest.pages != 0) {
    ranges_.emplace(rest.first, rest.pages);
    index_->Add(rest);
  }
  free_pages_ -= pages;
}

void FreeRanges::Free(Range range) {
  free_pages_ += range.pages;
  const auto next = ranges_.lower_bound(range.first);
  TIER_CHECK(next == ranges_.end() || next->first >= range.first + range.pages, "page {} is freed twice", next->first);
  if (next != ranges_.end() && next->first == range.first + range.pages) {
    index_->Remove({next->first, next->second});
    range.pages += next->second;
    ranges_.erase(next);
  }
  const auto after = ranges_.lower_bound(range.first);
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    TIER_CHECK(before->first + before->second <= range.first, "page {} is freed twice", range.first);
    if (before->first + before->second == range.first) {
      index_->Remove({before->first, before->second});
      range = {before->first, before->second + range.pages};
      ranges_.erase(before);
    }
  }
  ranges_.emplace(range.first, range.pages);
  index_->Add(range);
}

}  // namespace tier::churn
