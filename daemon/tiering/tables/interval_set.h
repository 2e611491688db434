// IntervalSet: the bytes of an object that have been covered, as disjoint, sorted, merged ranges. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tier::tiering {

class IntervalSet {
 public:
  struct Interval {
    uint64_t begin = 0;
    uint64_t end = 0;  // One past the last.
    friend bool operator==(const Interval&, const Interval&) = default;
  };

  // Returns how many ranges had to be moved.
  size_t Add(uint64_t begin, uint64_t end);
  bool Covers(uint64_t begin, uint64_t end) const;
  bool Touches(uint64_t begin, uint64_t end) const;  // Adding this range makes no new interval.
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  size_t FirstEndingAtOrAfter(uint64_t begin) const;
  std::vector<Interval> intervals_;
};

}  // namespace tier::tiering
