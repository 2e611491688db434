// The accounts by themselves. What the engine charges to them: metadata_test.cc.
#include "daemon/tiering/tables/metadata_budget.h"

#include <array>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

using ::testing::HasSubstr;

uint64_t Of(const MetadataSums& sums, MetadataKind kind) { return sums[static_cast<size_t>(kind)]; }

TEST(MetadataBudget, JobsOfOneUserShareAnAccount) {
  MetadataBudget budget(1000);
  MetadataAccount& first = budget.Open(7);
  MetadataAccount& second = budget.Open(7);
  MetadataAccount& other = budget.Open(8);
  EXPECT_EQ(&first, &second);
  first.Charge(MetadataKind::kTensors, 600);
  EXPECT_TRUE(second.HasRoom(400));
  EXPECT_FALSE(second.HasRoom(401));
  EXPECT_TRUE(other.HasRoom(1000)) << "another user";
  first.Release(MetadataKind::kTensors, 600);
  budget.Close(first);
  budget.CheckInvariants({{&second, {}}, {&other, {}}});
  budget.Close(second);
  budget.CheckInvariants({{&other, {}}});
}

TEST(MetadataBudget, FiguresTellTheKindsAndTheLargestUser) {
  MetadataBudget budget(1000);
  MetadataAccount& a = budget.Open(1);
  MetadataAccount& b = budget.Open(2);
  MetadataCharge<MetadataKind::kAnswers> answers;
  a.Charge(MetadataKind::kKeys, 100);
  b.Charge(MetadataKind::kKeys, 50);
  b.Recharge(&answers, 70);
  b.Recharge(&answers, 90);
  EXPECT_EQ(answers.bytes(), 90u);
  budget.CountRefusal();
  const MetadataFigures figures = budget.figures();
  EXPECT_EQ(Of(figures.of_kind, MetadataKind::kKeys), 150u);
  EXPECT_EQ(Of(figures.of_kind, MetadataKind::kAnswers), 90u);
  EXPECT_EQ(figures.of_largest_user, 140u);
  EXPECT_EQ(figures.limit, 1000u);
  EXPECT_EQ(figures.refusals, 1u);
  EXPECT_THAT(b.Describe(), HasSubstr("uid 2 have 140 bytes of 1000 bytes of the daemon's own memory: "
                                      "50 bytes for keys, 90 bytes for answers"));
}

TEST(MetadataBudget, ReserveIsASixteenth) {
  MetadataBudget budget(1600);
  MetadataAccount& account = budget.Open(1);
  account.Charge(MetadataKind::kLeases, 1600);
  EXPECT_FALSE(account.HasRoom(1));
  EXPECT_TRUE(account.HasRoomInReserve(100));
  EXPECT_FALSE(account.HasRoomInReserve(101));
  EXPECT_EQ(account.available(), 0u);
}

TEST(MetadataBudget, WhatIsNotGivenBackIsFound) {
  MetadataBudget budget(1000);
  MetadataAccount& account = budget.Open(1);
  account.Charge(MetadataKind::kKeys, 10);
  EXPECT_DEATH(account.Release(MetadataKind::kLeases, 1), "1 of 0 bytes of leases released");
  EXPECT_DEATH(budget.CheckInvariants({{&account, {}}}), "keys cost 0 bytes, 10 are charged");
  EXPECT_DEATH(budget.CheckInvariants({}), "0 users with jobs have 1 accounts");
  EXPECT_DEATH(budget.Close(account), "leaves 10 bytes behind");
}

TEST(MetadataBudget, ALoweredLimitTakesNothing) {
  MetadataBudget budget(1 << 20);
  MetadataAccount& account = budget.Open(7);
  account.Charge(MetadataKind::kAnswers, 1000);
  budget.SetLimit(160);
  EXPECT_EQ(budget.figures().limit, 160u);
  EXPECT_FALSE(account.HasRoom(1));
  EXPECT_FALSE(account.IsOver()) << "it had them before";
  account.Charge(MetadataKind::kAnswers, 11);
  EXPECT_TRUE(account.IsOver()) << "those are new";
  account.Release(MetadataKind::kAnswers, 1000);
  EXPECT_FALSE(account.IsOver());
  EXPECT_TRUE(account.HasRoom(149));
  EXPECT_EQ(budget.Open(8).limit(), 160u);
  budget.SetLimit(1 << 20);
  EXPECT_TRUE(account.HasRoom(1000));
  account.Charge(MetadataKind::kLeases, (1 << 20) + (1 << 16));
  EXPECT_TRUE(account.IsOver());
  account.Release(MetadataKind::kLeases, (1 << 20) + (1 << 16));
  account.Release(MetadataKind::kAnswers, 11);
}

TEST(MetadataBudget, TheSameLimitAgainAllowsNothingMore) {
  MetadataBudget budget(1 << 20);
  MetadataAccount& account = budget.Open(7);
  account.Charge(MetadataKind::kAnswers, 1000);
  budget.SetLimit(160);
  account.Charge(MetadataKind::kAnswers, 11);
  ASSERT_TRUE(account.IsOver());
  budget.SetLimit(160);
  EXPECT_TRUE(account.IsOver()) << "each reload sets it, whatever has changed";
  budget.SetLimit(170);
  EXPECT_TRUE(account.IsOver());
  account.Release(MetadataKind::kAnswers, 1);
  EXPECT_FALSE(account.IsOver());
}

TEST(MetadataBudget, WhatWasGivenBackIsNotAllowedAgain) {
  MetadataBudget budget(1 << 20);
  MetadataAccount& account = budget.Open(7);
  account.Charge(MetadataKind::kTensors, 1000);
  MetadataCharge<MetadataKind::kAnswers> answers;
  account.Recharge(&answers, 500);
  budget.SetLimit(160);
  account.Recharge(&answers, 500);
  EXPECT_FALSE(account.IsOver()) << "it costs as much as before";
  account.Recharge(&answers, 0);
  EXPECT_FALSE(account.IsOver());
  account.Recharge(&answers, 10);
  EXPECT_FALSE(account.IsOver()) << "within the reserve";
  account.Recharge(&answers, 11);
  EXPECT_TRUE(account.IsOver());
  account.Recharge(&answers, 0);
  account.Release(MetadataKind::kTensors, 1000);
  account.Charge(MetadataKind::kTensors, 170);
  EXPECT_FALSE(account.IsOver());
  account.Charge(MetadataKind::kTensors, 1);
  EXPECT_TRUE(account.IsOver());
}

TEST(MetadataBudget, SumsHoldThroughRandomHistories) {
  std::mt19937_64 random(7);
  MetadataBudget budget(1 << 20);
  std::unordered_map<const MetadataAccount*, MetadataSums> sums;
  std::vector<MetadataAccount*> accounts;
  for (uint32_t uid = 0; uid < 5; ++uid) accounts.push_back(&budget.Open(uid));
  for (MetadataAccount* account : accounts) sums[account] = {};
  std::array<MetadataCharge<MetadataKind::kRequests>, 5> requests;  // By uid.
  for (int i = 0; i < 20'000; ++i) {
    MetadataAccount& account = *accounts[random() % accounts.size()];
    const size_t kind = random() % kMetadataKinds;
    const uint64_t bytes = random() % 1000;
    if (random() % 3 == 0) {
      auto& charge = requests[account.uid()];
      sums[&account][static_cast<size_t>(MetadataKind::kRequests)] += bytes - charge.bytes();
      account.Recharge(&charge, bytes);
    } else {
      account.Charge(static_cast<MetadataKind>(kind), bytes);
      account.Release(static_cast<MetadataKind>(kind), bytes / 2);
      sums[&account][kind] += bytes - bytes / 2;
    }
    if (i % 100 == 0) budget.CheckInvariants(sums);
  }
  budget.CheckInvariants(sums);
}

}  // namespace
}  // namespace tier::tiering
