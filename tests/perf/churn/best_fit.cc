#include "tests/perf/churn/best_fit.h"

#include <set>
#include <utility>

#include "tests/perf/churn/free_ranges.h"

namespace tier::churn {
namespace {

class BestFit final : public Allocator, private FreeRanges::Index {
 public:
  explicit BestFit(uint64_t arena_pages) : Allocator(arena_pages), free_(arena_pages, this) {}
  std::string_view name() const override { return "best fit"; }
  bool TryAllocate(uint64_t pages, Place* place) override {
    const auto found = by_size_.lower_bound({pages, 0});
    if (found == by_size_.end()) return false;
    const Range range{found->second, found->first};
    free_.Take(range, pages);
    *place = {.first = range.first, .pages = pages, .runs = {}};
    return true;
  }
  void Free(const Place& place) override { free_.Free({place.first, place.pages}); }
  uint64_t held_pages() const override { return arena_pages() - free_.free_pages(); }

 private:
  void Add(Range range) override { by_size_.emplace(range.pages, range.first); }
  void Remove(Range range) override { by_size_.erase({range.pages, range.first}); }

  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  FreeRanges free_;
};

}  // namespace

std::unique_ptr<Allocator> MakeBestFit(uint64_t arena_pages) { return std::make_unique<BestFit>(arena_pages); }

}  // namespace tier::churn
