// Turns by bytes among jobs that wait for the budget of writes.
#include "daemon/tiering/tables/budget_turns.h"

#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

constexpr JobIndex kLarge{7}, kSmall{3}, kThird{5};
constexpr uint64_t kTurn = BudgetTurns::kTurnBytes;

bool Write(BudgetTurns& turns, JobIndex job, uint64_t bytes) {
  if (!turns.Allows(job, bytes)) return false;
  turns.Spend(job, bytes);
  turns.CheckInvariants();
  return true;
}

TEST(BudgetTurns, ATurnIsSoManyBytesAndNotSoManyWrites) {
  BudgetTurns turns;
  EXPECT_EQ(turns.first(), kNoJob);
  turns.Join(kLarge);
  turns.Join(kSmall);
  EXPECT_TRUE(Write(turns, kLarge, kTurn));
  for (uint64_t written = 0; written < kTurn; written += kPageSize) {
    ASSERT_EQ(turns.first(), kSmall) << written;
    ASSERT_TRUE(Write(turns, kSmall, kPageSize));
  }
  EXPECT_EQ(turns.first(), kLarge);
}

TEST(BudgetTurns, WhatATurnLeavesIsAddedToTheNextOne) {
  BudgetTurns turns;
  turns.Join(kLarge);
  turns.Join(kSmall);
  EXPECT_TRUE(Write(turns, kLarge, kTurn / 4));
  EXPECT_FALSE(Write(turns, kLarge, kTurn)) << "three quarters are left";
  EXPECT_EQ(turns.first(), kSmall);
  EXPECT_TRUE(Write(turns, kSmall, kTurn));
  EXPECT_TRUE(Write(turns, kLarge, kTurn));
  EXPECT_TRUE(Write(turns, kLarge, kTurn / 4 * 3)) << "which it has now as well";
  EXPECT_EQ(turns.first(), kSmall);
}

TEST(BudgetTurns, WhoLeavesHasNoMoreThanOthersWhenItComesBack) {
  BudgetTurns turns;
  turns.Join(kLarge);
  turns.Join(kSmall);
  EXPECT_TRUE(Write(turns, kLarge, kTurn / 4));
  EXPECT_FALSE(Write(turns, kLarge, kTurn));
  turns.Leave(kLarge);
  EXPECT_FALSE(turns.Has(kLarge));
  turns.Join(kLarge);
  EXPECT_TRUE(Write(turns, kSmall, kTurn));
  EXPECT_TRUE(Write(turns, kLarge, kTurn));
  EXPECT_EQ(turns.first(), kSmall);
}

TEST(BudgetTurns, TheTurnOfWhoLeavesIsTheNextOnes) {
  BudgetTurns turns;
  for (const JobIndex job : {kLarge, kSmall, kThird}) turns.Join(job);
  turns.Leave(kSmall);
  turns.Leave(kLarge);
  EXPECT_EQ(turns.first(), kThird);
  turns.Leave(kThird);
  EXPECT_TRUE(turns.empty());
}

TEST(BudgetTurns, AloneOneTurnFollowsAnother) {
  BudgetTurns turns;
  turns.Join(kLarge);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Write(turns, kLarge, kTurn / 3 * 2)) << i;
}

}  // namespace
}  // namespace tier::tiering
