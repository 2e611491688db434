// Random windows come and go in an arena; each must find its place in an address space of twice the arena: of two sizes
// at once, of several after it was halved some times.
// A failure prints RapidCheck's seed and the shrunken program; replay with RC_PARAMS="seed=<seed>".
#include "daemon/memory/place_allocator.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tier::memory {
namespace {

struct Taken {
  uint64_t place;
  uint64_t size;
};

// An arena of `large_count` large windows, and what it holds.
class Arena {
 public:
  Arena(uint64_t small, uint64_t large, uint64_t large_count)
      : small_(small), large_(large), bytes_(large * large_count), places_(2 * bytes_, large) {}

  // What fits the arena must find a place.
  void Take(bool large) {
    const uint64_t size = large ? large_ : small_;
    if (places_.taken_bytes() + size > bytes_) return;
    const auto place = places_.TryTake(size);
    RC_ASSERT(place.has_value());
    RC_ASSERT(*place % size == 0U);
    RC_ASSERT(*place + size <= places_.space_bytes());
    const bool overlaps = std::any_of(windows_.begin(), windows_.end(), [&](const Taken& other) {
      return *place < other.place + other.size && other.place < *place + size;
    });
    RC_ASSERT(!overlaps);
    windows_.push_back({*place, size});
  }
  // Of any size that the arena has room for. Halved, it finds a place.
  void TakeAnySize(uint32_t doublings) {
    uint64_t size = std::min(small_ << doublings, large_);
    while (size > small_ && places_.taken_bytes() + size > bytes_) size /= 2;
    if (places_.taken_bytes() + size > bytes_) return;
    auto place = places_.TryTake(size);
    while (!place && size > small_) place = places_.TryTake(size /= 2);
    RC_ASSERT(place.has_value());
    windows_.push_back({*place, size});
  }
  void Free(uint32_t which) {
    if (windows_.empty()) return;
    const auto window = windows_.begin() + which % windows_.size();
    places_.Free(window->place, window->size);
    windows_.erase(window);
  }
  // Of each group of the large size one small window is left: what costs the most places.
  void Scatter() {
    std::vector<uint64_t> groups;
    std::erase_if(windows_, [&](const Taken& window) {
      const uint64_t group = window.place / large_;
      const bool first = window.size == small_ && std::find(groups.begin(), groups.end(), group) == groups.end();
      if (first) groups.push_back(group);
      if (!first) places_.Free(window.place, window.size);
      return !first;
    });
  }
  void Check() const {
    places_.CheckInvariants();
    uint64_t taken = 0;
    for (const Taken& window : windows_) taken += window.size;
    RC_ASSERT(places_.taken_bytes() == taken);
  }

 private:
  uint64_t small_;
  uint64_t large_;
  uint64_t bytes_;
  PlaceAllocator places_;
  std::vector<Taken> windows_;
};

RC_GTEST_PROP(PlaceAllocatorProperty, TwoSizesAlwaysFindAPlaceInTwiceTheArena, ()) {
  const uint64_t large = kWindowSizeMin << *rc::gen::inRange(0, 6);
  const uint64_t small = std::min(large, kWindowSizeMin << *rc::gen::inRange(0, 3));
  Arena arena(small, large, *rc::gen::inRange<uint64_t>(1, 9));
  const auto steps = *rc::gen::scale(4.0, rc::gen::arbitrary<std::vector<std::pair<uint8_t, uint8_t>>>());
  for (const auto& [action, number] : steps) {
    // Bursts of one size, so that the arena gets full of it.
    for (uint32_t i = 0; i < (action % 8 < 6 ? number % 40U : 1U); ++i) {
      if (action % 8 < 3) arena.Take(action % 2 == 0);
      if (action % 8 >= 3 && action % 8 < 6) arena.Free(number + i);
    }
    if (action % 8 == 6) arena.Scatter();
    if (action % 8 == 7) arena.Take(number % 2 == 0);
    arena.Check();
  }
}

RC_GTEST_PROP(PlaceAllocatorProperty, SeveralSizesFindAPlaceOnceTheyAreHalved, ()) {
  const uint64_t large = kWindowSizeMin << *rc::gen::inRange(0, 9);
  Arena arena(kWindowSizeMin, large, *rc::gen::inRange<uint64_t>(1, 5));
  const auto steps = *rc::gen::scale(4.0, rc::gen::arbitrary<std::vector<std::pair<uint8_t, uint8_t>>>());
  for (const auto& [action, number] : steps) {
    for (uint32_t i = 0; i < number % 40U; ++i) {
      if (action % 8 < 4) arena.TakeAnySize((action % 4 == 0 ? i : action) % 9U);
      if (action % 8 >= 4 && action % 8 < 7) arena.Free(number + i);
    }
    if (action % 8 == 7) arena.Scatter();
    arena.Check();
  }
}

}  // namespace
}  // namespace tier::memory
