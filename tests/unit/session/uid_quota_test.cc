// What users share: no user takes all, and the one that has most is known.
#include "daemon/session/uid_quota.h"

#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tier::session {
namespace {

TEST(UidQuota, OneUserGetsSevenEighths) {
  EXPECT_EQ(PerUidLimit(256), 224u);
  EXPECT_EQ(PerUidLimit(1), 1u);
  UidQuota quota(16, PerUidLimit(16));
  for (int i = 0; i < 14; ++i) quota.Take(1000);
  EXPECT_EQ(quota.OverQuotaUid(1000), 1000u) << "its own limit";
  EXPECT_EQ(quota.OverQuotaUid(1001), std::nullopt) << "the rest is for others";
  quota.Give(1000);
  EXPECT_EQ(quota.OverQuotaUid(1000), std::nullopt);
}

TEST(UidQuota, WhereNothingIsLeftTheUserWithMostIsNamed) {
  UidQuota quota(6, 4);
  for (const uint32_t uid : {7u, 8u, 8u, 8u, 9u, 9u}) quota.Take(uid);
  EXPECT_EQ(quota.OverQuotaUid(10), 8u);
  EXPECT_EQ(quota.OverQuotaUid(7), 8u);
  quota.Give(8);
  EXPECT_EQ(quota.OverQuotaUid(10), std::nullopt);
  quota.Take(10);
  EXPECT_EQ(quota.taken(), quota.max());
}

TEST(UidQuota, OneUserMayHaveAllWhereNobodyElseComes) {
  UidQuota quota(3, 3);
  for (int i = 0; i < 3; ++i) quota.Take(0);
  EXPECT_EQ(quota.OverQuotaUid(0), 0u);
}

TEST(UidQuota, ALoweredLimitLeavesWhatIsTaken) {
  UidQuota quota(8, 6);
  for (int i = 0; i < 6; ++i) quota.Take(1000);
  quota.SetMax(4, 3);
  EXPECT_EQ(quota.HeldBy(1000), 6u);
  EXPECT_EQ(quota.OverQuotaUid(1000), 1000u);
  EXPECT_EQ(quota.OverQuotaUid(1001), 1000u) << "all are taken, and more";
  for (int i = 0; i < 4; ++i) quota.Give(1000);
  EXPECT_EQ(quota.OverQuotaUid(1001), std::nullopt);
  quota.Take(1000);
  EXPECT_EQ(quota.OverQuotaUid(1000), 1000u);
  quota.SetMax(16, 14);
  EXPECT_EQ(quota.OverQuotaUid(1000), std::nullopt);
}

TEST(UidQuota, BooksBalanceAfterAnyHistory) {
  constexpr uint32_t kSeed = 20261121;
  std::mt19937 random(kSeed);
  UidQuota quota(20, PerUidLimit(20));
  std::vector<size_t> held(5);
  for (int step = 0; step < 10'000; ++step) {
    const auto uid = static_cast<uint32_t>(random() % held.size());
    const size_t sum = std::accumulate(held.begin(), held.end(), size_t{0});
    if (random() % 5 < 2) {
      if (held[uid] > 0) --held[uid], quota.Give(uid);
    } else {
      const auto over_quota = quota.OverQuotaUid(uid);
      ASSERT_EQ(over_quota.has_value(), held[uid] == quota.of_one_max() || sum == quota.max()) << "seed " << kSeed;
      if (!over_quota) ++held[uid], quota.Take(uid);
    }
    ASSERT_EQ(quota.HeldBy(uid), held[uid]) << "seed " << kSeed << " step " << step;
    ASSERT_EQ(quota.taken(), std::accumulate(held.begin(), held.end(), size_t{0}));
  }
}

}  // namespace
}  // namespace tier::session
