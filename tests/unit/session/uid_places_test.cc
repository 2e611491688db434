// Places that users share: nobody takes all, and the one that has most is known.
#include "daemon/session/uid_places.h"

#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tier::session {
namespace {

TEST(UidPlaces, OneUserGetsAllButAnEighth) {
  EXPECT_EQ(AllButAnEighth(256), 224u);
  EXPECT_EQ(AllButAnEighth(1), 1u);
  UidPlaces places(16, AllButAnEighth(16));
  for (int i = 0; i < 14; ++i) places.Take(1000);
  EXPECT_EQ(places.Crowder(1000), 1000u) << "its own limit";
  EXPECT_EQ(places.Crowder(1001), std::nullopt) << "the rest is for others";
  places.Give(1000);
  EXPECT_EQ(places.Crowder(1000), std::nullopt);
}

TEST(UidPlaces, WhereNothingIsLeftTheOneWithMostCrowdsOut) {
  UidPlaces places(6, 4);
  for (const uint32_t uid : {7u, 8u, 8u, 8u, 9u, 9u}) places.Take(uid);
  EXPECT_EQ(places.Crowder(10), 8u);
  EXPECT_EQ(places.Crowder(7), 8u);
  places.Give(8);
  EXPECT_EQ(places.Crowder(10), std::nullopt);
  places.Take(10);
  EXPECT_EQ(places.taken(), places.max());
}

TEST(UidPlaces, OneUserMayHaveAllWhereNobodyElseComes) {
  UidPlaces places(3, 3);
  for (int i = 0; i < 3; ++i) places.Take(0);
  EXPECT_EQ(places.Crowder(0), 0u);
}

TEST(UidPlaces, BooksBalanceAfterAnyHistory) {
  constexpr uint32_t kSeed = 20261121;
  std::mt19937 random(kSeed);
  UidPlaces places(20, AllButAnEighth(20));
  std::vector<size_t> held(5);
  for (int step = 0; step < 10'000; ++step) {
    const uint32_t uid = random() % held.size();
    const size_t sum = std::accumulate(held.begin(), held.end(), size_t{0});
    if (random() % 5 < 2) {
      if (held[uid] > 0) --held[uid], places.Give(uid);
    } else {
      const auto crowder = places.Crowder(uid);
      ASSERT_EQ(crowder.has_value(), held[uid] == places.of_one_max() || sum == places.max()) << "seed " << kSeed;
      if (!crowder) ++held[uid], places.Take(uid);
    }
    ASSERT_EQ(places.HeldBy(uid), held[uid]) << "seed " << kSeed << " step " << step;
    ASSERT_EQ(places.taken(), std::accumulate(held.begin(), held.end(), size_t{0}));
  }
}

}  // namespace
}  // namespace tier::session
