// Random places against a list that is searched from its beginning to its end.
#include "daemon/storage/tried_places.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace tier::storage {
namespace {

using base::PageRun;

PageRun AnyRun() {
  const auto page = *rc::gen::inRange<uint16_t>(0, 40);
  const auto pages = *rc::gen::weightedOneOf<uint16_t>(
      {{8, rc::gen::inRange<uint16_t>(1, 12)}, {1, rc::gen::just(static_cast<uint16_t>(kPagesPerBlock - page))}});
  return {.block = *rc::gen::inRange<uint32_t>(0, 3), .page = page, .pages = pages};
}

bool EraseOverlapping(std::vector<PageRun>* places, PageRun run) {
  return std::erase_if(*places, [run](PageRun other) {
           return other.block == run.block && other.page < run.page + run.pages && run.page < other.page + other.pages;
         }) != 0;
}

TEST(TriedPlacesProperty, AgreeWithAListOfThem) {
  const bool holds = rc::check("tried places", [] {
    TriedPlaces places;
    std::vector<PageRun> model;
    const auto steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      const PageRun run = AnyRun();
      const bool add = *rc::gen::weightedElement<bool>({{3, true}, {1, false}});
      const bool overlapped = EraseOverlapping(&model, run);
      if (add) {
        places.Add(run);
        model.push_back(run);
      } else {
        RC_ASSERT(places.Erase(run) == overlapped);
      }
      RC_ASSERT(places.size() == model.size());
      places.CheckInvariants();
    }
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

}  // namespace
}  // namespace tier::storage
