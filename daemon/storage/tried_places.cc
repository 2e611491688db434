#include "daemon/storage/tried_places.h"

#include <iterator>

#include "daemon/base/check.h"

namespace tier::storage {

void TriedPlaces::Add(base::PageRun place) {
  Erase(place);
  if (places_.size() == kTriedPlacesMax) places_.erase(places_.begin());
  places_.emplace(FirstPage(place), place.pages);
}

bool TriedPlaces::Erase(base::PageRun run) {
  const uint64_t first = FirstPage(run);
  auto place = places_.upper_bound(first);
  if (place != places_.begin()) {  // The one before may reach into the run.
    const auto before = std::prev(place);
    if (before->first + before->second > first) place = before;
  }
  bool any = false;
  while (place != places_.end() && place->first < first + run.pages) {
    place = places_.erase(place);
    any = true;
  }
  return any;
}

void TriedPlaces::CheckInvariants() const {
  TIER_CHECK(places_.size() <= kTriedPlacesMax, "{} places", places_.size());
  uint64_t end = 0;
  for (const auto& [first, pages] : places_) {
    TIER_CHECK(pages != 0 && first >= end, "{} pages from page {}, the place before ends at {}", pages, first, end);
    end = first + pages;
  }
}

}  // namespace tier::storage
