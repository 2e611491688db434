#include "tests/perf/churn/segregated_fit.h"

#include <array>
#include <bit>
#include <list>
#include <map>
#include <unordered_map>

#include "tests/perf/churn/free_ranges.h"

namespace tier::churn {
namespace {

constexpr int kPartsLog2 = 5;
constexpr uint64_t kParts = uint64_t{1} << kPartsLog2;

// The class of ranges of this many pages: below kParts each number is a class of its own.
uint64_t ClassOf(uint64_t pages) {
  if (pages < kParts) return pages;
  const auto log2 = static_cast<uint64_t>(std::bit_width(pages) - 1);
  return (log2 - kPartsLog2 + 1) * kParts + ((pages >> (log2 - kPartsLog2)) - kParts);
}

// The first number of pages from `pages` on that begins a class.
uint64_t RoundedUp(uint64_t pages) {
  if (pages < kParts) return pages;
  const uint64_t step = std::bit_floor(pages) / kParts;
  return (pages + step - 1) / step * step;
}

class SegregatedFit final : public Allocator, private FreeRanges::Index {
 public:
  explicit SegregatedFit(uint64_t arena_pages) : Allocator(arena_pages), free_(arena_pages, this) {}
  std::string_view name() const override { return "TLSF"; }
  bool TryAllocate(uint64_t pages, Place* place) override {
    const auto found = classes_.lower_bound(ClassOf(RoundedUp(pages)));
    if (found == classes_.end()) return false;
    const Range range = found->second.front();
    free_.Take(range, pages);
    *place = {.first = range.first, .pages = pages, .runs = {}};
    return true;
  }
  void Free(const Place& place) override { free_.Free({place.first, place.pages}); }
  uint64_t held_pages() const override { return arena_pages() - free_.free_pages(); }

 private:
  void Add(Range range) override {
    std::list<Range>& of_class = classes_[ClassOf(range.pages)];
    of_class.push_front(range);
    at_.emplace(range.first, of_class.begin());
  }
  void Remove(Range range) override {
    const auto found = at_.find(range.first);
    const auto of_class = classes_.find(ClassOf(range.pages));
    of_class->second.erase(found->second);
    if (of_class->second.empty()) classes_.erase(of_class);
    at_.erase(found);
  }

  std::map<uint64_t, std::list<Range>> classes_;  // Those that have ranges, the last added first.
  std::unordered_map<uint64_t, std::list<Range>::iterator> at_;
  FreeRanges free_;
};

}  // namespace

std::unique_ptr<Allocator> MakeSegregatedFit(uint64_t arena_pages) {
  return std::make_unique<SegregatedFit>(arena_pages);
}

}  // namespace tier::churn
