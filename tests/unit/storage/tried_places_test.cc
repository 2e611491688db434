// Places that failed once: found by any of their pages, and bounded.
#include "daemon/storage/tried_places.h"

#include <array>
#include <tuple>

#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using base::PageRun;

TEST(TriedPlaces, AreFoundByAnyOfTheirPages) {
  constexpr PageRun kPlace{.block = 3, .page = 10, .pages = 5};
  for (const auto& [page, pages, found] : {std::tuple{9, 1, false},
                                           {9, 2, true},
                                           {10, 1, true},
                                           {12, 1, true},
                                           {14, 1, true},
                                           {15, 1, false},
                                           {0, 512, true}}) {
    TriedPlaces places;
    places.Add(kPlace);
    const PageRun run{.block = 3, .page = static_cast<uint16_t>(page), .pages = static_cast<uint16_t>(pages)};
    EXPECT_EQ(places.Erase(run), found) << page << " + " << pages;
    EXPECT_EQ(places.empty(), found);
  }
}

TEST(TriedPlaces, OfNeighbouringBlocksAreOthers) {
  TriedPlaces places;
  places.Add({.block = 3, .page = 0, .pages = 512});
  EXPECT_FALSE(places.Erase({.block = 2, .page = 511, .pages = 1}));
  EXPECT_FALSE(places.Erase({.block = 4, .page = 0, .pages = 512}));
  EXPECT_TRUE(places.Erase({.block = 3, .page = 511, .pages = 1}));
}

TEST(TriedPlaces, ANewOneReplacesThoseItOverlaps) {
  TriedPlaces places;
  for (const uint16_t page : std::array<uint16_t, 3>{0, 10, 20}) places.Add({.block = 0, .page = page, .pages = 10});
  places.Add({.block = 0, .page = 9, .pages = 2});
  places.CheckInvariants();
  EXPECT_EQ(places.size(), 2u);
  EXPECT_FALSE(places.Erase({.block = 0, .page = 0, .pages = 9}));
  EXPECT_TRUE(places.Erase({.block = 0, .page = 10, .pages = 1}));
}

TEST(TriedPlaces, AreBoundedAndTheLatestIsAmongThem) {
  for (const bool upwards : {false, true}) {
    TriedPlaces places;
    for (uint32_t i = 0; i < kTriedPlacesMax + 100; ++i) {
      const PageRun place{.block = upwards ? i : 10'000 - i, .page = 7, .pages = 1};
      places.Add(place);
      ASSERT_LE(places.size(), kTriedPlacesMax);
      places.CheckInvariants();
      if (i % 64 != 0) continue;
      ASSERT_TRUE(places.Erase(place));
      places.Add(place);
    }
    EXPECT_EQ(places.size(), kTriedPlacesMax);
  }
}

}  // namespace
}  // namespace tier::storage
