#include "tests/perf/churn/buddy.h"

#include <array>
#include <bit>
#include <set>

#include "daemon/base/check.h"

namespace tier::churn {
namespace {

class Buddy final : public Allocator {
 public:
  explicit Buddy(uint64_t arena_pages) : Allocator(arena_pages) {
    uint64_t first = 0;
    for (int order = kOrders - 1; order >= 0; --order) {
      if ((arena_pages & SizeOf(order)) == 0) continue;
      free_.at(order).insert(first);
      first += SizeOf(order);
    }
    TIER_CHECK(first == arena_pages, "{} of {} pages", first, arena_pages);
  }
  std::string_view name() const override { return "buddy"; }
  bool TryAllocate(uint64_t pages, Place* place) override {
    const int order = OrderOf(pages);
    int from = order;
    while (from < kOrders && free_.at(from).empty()) ++from;
    if (from == kOrders) return false;
    const uint64_t first = *free_.at(from).begin();
    free_.at(from).erase(free_.at(from).begin());
    while (from > order) {
      --from;
      free_.at(from).insert(first + SizeOf(from));
    }
    held_ += SizeOf(order);
    *place = {.first = first, .pages = SizeOf(order), .runs = {}};
    return true;
  }
  void Free(const Place& place) override {
    held_ -= place.pages;
    uint64_t first = place.first;
    int order = OrderOf(place.pages);
    // The places of the arena's powers of two are multiples of them, as the larger come first: a buddy that does not
    // exist is never found free.
    while (order + 1 < kOrders && free_.at(order).erase(first ^ SizeOf(order)) != 0) {
      first &= ~SizeOf(order);
      ++order;
    }
    TIER_CHECK(free_.at(order).insert(first).second, "page {} is freed twice", first);
  }
  uint64_t held_pages() const override { return held_; }

 private:
  static constexpr int kOrders = 48;
  static uint64_t SizeOf(int order) { return uint64_t{1} << order; }
  static int OrderOf(uint64_t pages) { return static_cast<int>(std::bit_width(pages - 1)); }

  std::array<std::set<uint64_t>, kOrders> free_;  // The lowest address first.
  uint64_t held_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakeBuddy(uint64_t arena_pages) { return std::make_unique<Buddy>(arena_pages); }

}  // namespace tier::churn
