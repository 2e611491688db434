// See interval_set.h.
#include "daemon/tiering/tables/interval_set.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::tiering {

size_t IntervalSet::FirstEndingAtOrAfter(uint64_t begin) const {
  const auto found = std::lower_bound(intervals_.begin(), intervals_.end(), begin,
                                      [](const Interval& interval, uint64_t value) { return interval.end < value; });
  return static_cast<size_t>(found - intervals_.begin());
}

size_t IntervalSet::Add(uint64_t begin, uint64_t end) {
  TIER_CHECK(begin < end, "[{}, {})", begin, end);
  const size_t first = FirstEndingAtOrAfter(begin);
  size_t last = first;
  while (last < intervals_.size() && intervals_[last].begin <= end) {
    begin = std::min(begin, intervals_[last].begin);
    end = std::max(end, intervals_[last].end);
    ++last;
  }
  const auto at = intervals_.begin() + static_cast<ptrdiff_t>(first);
  if (first == last) {
    intervals_.insert(at, {begin, end});
    return intervals_.size() - first - 1;
  }
  *at = {begin, end};
  if (last == first + 1) return 0;
  intervals_.erase(at + 1, intervals_.begin() + static_cast<ptrdiff_t>(last));
  return intervals_.size() - first - 1;
}

bool IntervalSet::Touches(uint64_t begin, uint64_t end) const {
  const size_t first = FirstEndingAtOrAfter(begin);
  return first < intervals_.size() && intervals_[first].begin <= end;
}

bool IntervalSet::Covers(uint64_t begin, uint64_t end) const {
  const size_t first = FirstEndingAtOrAfter(end);
  return first < intervals_.size() && intervals_[first].begin <= begin;
}

}  // namespace tier::tiering
