// FreeRanges: free ranges of pages by address, joined with their neighbours as soon as they are free. What best fit and
// TLSF share; which range serves a request is theirs.
#pragma once

#include <cstdint>
#include <map>

namespace tier::churn {

struct Range {
  uint64_t first = 0;
  uint64_t pages = 0;
  auto operator<=>(const Range&) const = default;
};

class FreeRanges {
 public:
  // The index of a kind of allocator over these ranges.
  class Index {
   public:
    virtual ~Index() = default;
    virtual void Add(Range range) = 0;
    virtual void Remove(Range range) = 0;
  };

  FreeRanges(uint64_t pages, Index* index);
  // Takes `pages` from the beginning of a free range.
  void Take(Range range, uint64_t pages);
  void Free(Range range);
  uint64_t free_pages() const { return free_pages_; }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // From the first page to the number of pages.
  Index* index_;
  uint64_t free_pages_;
};

}  // namespace tier::churn
