// The ledger of entitlement under quotas of users: what is divided, what is refused, and what changes at run time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr uint64_t kArena = 256 * kMiB;
constexpr uint32_t kUid = 7;

class QuotaLedger : public ::testing::Test {
 protected:
  EntitlementIndex Open(Terms terms = {}, bool live = true, uint32_t uid = kUid) {
    const EntitlementIndex job = ledger_.Open(JobId{next_++}, uid, terms, uid == kUid ? quota_ : UserQuota{});
    if (live) ledger_.SetLive(job, true);
    return job;
  }
  void SetRam(uint64_t bytes) {
    quota_.ram.most = bytes;
    ledger_.SetQuota(kUid, quota_);
  }
  Status Admit(uint64_t bytes, EntitlementIndex job = kNoEntitlement) const {
    return ledger_.AdmitGuarantee(kUid, job, bytes, quota_);
  }
  void TearDown() override { ledger_.CheckInvariants(); }

  Ledger ledger_{kArena, {.block = kWindow, .slot = kWindow}};
  UserQuota quota_;
  uint64_t next_ = 1;
};

TEST_F(QuotaLedger, RamIsDividedAmongTheJobsThatHaveSessions) {
  SetRam(60 * kMiB);
  quota_.ram.most = 60 * kMiB;
  const EntitlementIndex first = Open();
  EXPECT_EQ(ledger_.AllowedTo(first), 60 * kMiB);
  const EntitlementIndex second = Open();
  EXPECT_EQ(ledger_.AllowedTo(first), 30 * kMiB);
  EXPECT_EQ(ledger_.AllowedTo(second), 30 * kMiB);
  const EntitlementIndex guaranteed = Open({.guarantee_bytes = 24 * kMiB});
  EXPECT_EQ(ledger_.AllowedTo(guaranteed), 36 * kMiB) << "its guarantee and a third of the rest";
  EXPECT_EQ(ledger_.AllowedTo(first), 12 * kMiB);
  ledger_.SetLive(second, false);
  EXPECT_EQ(ledger_.AllowedTo(second), 0u) << "the others may have all of it";
  EXPECT_EQ(ledger_.AllowedTo(first), 18 * kMiB);
  ledger_.End(guaranteed);
  EXPECT_EQ(ledger_.AllowedTo(first), 60 * kMiB);
  ledger_.SetLive(first, false);
  EXPECT_EQ(ledger_.AllowedTo(first), 30 * kMiB) << "neither has sessions";
  EXPECT_EQ(ledger_.AllowedTo(second), 30 * kMiB);
}

TEST_F(QuotaLedger, TheLowerOneOfLimitAndQuotaHolds) {
  quota_.ram.most = 40 * kMiB;
  const EntitlementIndex limited = Open({.limit_bytes = 10 * kMiB});
  EXPECT_EQ(ledger_.AllowedTo(limited), 10 * kMiB);
  EXPECT_FALSE(ledger_.BoundByQuota(limited));
  SetRam(8 * kMiB);
  EXPECT_EQ(ledger_.AllowedTo(limited), 8 * kMiB);
  EXPECT_TRUE(ledger_.BoundByQuota(limited));
  SetRam(2 * kArena);
  EXPECT_FALSE(ledger_.BoundByQuota(Open())) << "the arena is the bound";
}

TEST_F(QuotaLedger, OthersAreDividedAsWithoutIt) {
  const EntitlementIndex other = Open({}, true, 8);
  const EntitlementIndex bound = Open();
  EXPECT_EQ(ledger_.PromisedTo(other), 120 * kMiB);
  SetRam(20 * kMiB);
  EXPECT_EQ(ledger_.PromisedTo(other), 120 * kMiB);
  EXPECT_EQ(ledger_.AllowedTo(other), kArena);
  EXPECT_EQ(ledger_.PromisedTo(bound), 20 * kMiB) << "no more than it may have";
}

// What a job of the user holds just now must not bound the others: they would be owed memory that they may not have,
// and hand-over would take it from other users in vain.
TEST_F(QuotaLedger, WhatOneJobHoldsDoesNotBoundTheNext) {
  quota_.ram.most = 40 * kMiB;
  const EntitlementIndex first = Open();
  ledger_.AddHeld(first, 40 * kMiB);
  const EntitlementIndex second = Open();
  EXPECT_EQ(ledger_.AllowedTo(second), 20 * kMiB);
  EXPECT_EQ(ledger_.GrowthOf(second, kWindow), Growth::kOwn);
  EXPECT_EQ(ledger_.GrowthOf(first, kWindow), Growth::kNone);
  ledger_.Claim(second, 20 * kMiB, {});
  ledger_.SetHost(kArena, kArena);
  EXPECT_EQ(ledger_.BytesToGive(first), 20 * kMiB) << "the user's own job gives it";
}

TEST_F(QuotaLedger, AJobGrowsNoFurtherThanItsPart) {
  quota_.ram.most = 4 * kWindow;
  const EntitlementIndex job = Open();
  ledger_.AddHeld(job, 3 * kWindow);
  EXPECT_EQ(ledger_.GrowthOf(job, kWindow), Growth::kOwn);
  ledger_.AddHeld(job, kWindow);
  EXPECT_EQ(ledger_.GrowthOf(job, kWindow), Growth::kNone);
  SetRam(kUnlimited);
  EXPECT_NE(ledger_.GrowthOf(job, kWindow), Growth::kNone);
}

TEST_F(QuotaLedger, GuaranteesOfAUserFitItsQuota) {
  quota_.guarantee = {.most = 40 * kMiB, .origin = {.level = QuotaLevel::kGroup, .at_run_time = true, .id = 100}};
  const EntitlementIndex first = Open({.guarantee_bytes = 30 * kMiB});
  Open({.guarantee_bytes = 50 * kMiB}, true, 8);  // Of another user.
  EXPECT_TRUE(Admit(10 * kMiB));
  const Status refused = Admit(10 * kMiB + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("user 7 may be guaranteed 40 MiB (the quota of group 100, set at run time)"),
                    HasSubstr("its other jobs are guaranteed 30 MiB"), HasSubstr("tierctl quota set")));
  EXPECT_TRUE(Admit(40 * kMiB, first));
  EXPECT_FALSE(Admit(41 * kMiB, first));
}

TEST_F(QuotaLedger, NoneMayBeGuaranteedWhereTheQuotaIsNothing) {
  quota_.guarantee.most = 0;
  EXPECT_FALSE(Admit(1));
  EXPECT_TRUE(Admit(0)) << "a job without a guarantee";
}

TEST_F(QuotaLedger, AGuaranteeBeyondTheQuotaOfRamIsRefused) {
  quota_.ram = {.most = 20 * kMiB, .origin = {.level = QuotaLevel::kDefault}};
  const Status refused = Admit(21 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("user 7 may have RAM of 20 MiB (the default quota, in the "));
  EXPECT_TRUE(Admit(20 * kMiB));
}

TEST_F(QuotaLedger, AGuaranteeThatWasGivenStaysWhenTheQuotaIsLowered) {
  const EntitlementIndex first = Open({.guarantee_bytes = 40 * kMiB});
  const EntitlementIndex second = Open();
  quota_.guarantee.most = 8 * kMiB;
  SetRam(30 * kMiB);
  EXPECT_EQ(ledger_.PromisedTo(first), 40 * kMiB);
  EXPECT_EQ(ledger_.AllowedTo(first), 40 * kMiB);
  EXPECT_EQ(ledger_.AllowedTo(second), 0u) << "nothing is left";
  EXPECT_TRUE(Admit(40 * kMiB, first)) << "it takes nothing more";
  EXPECT_TRUE(Admit(16 * kMiB, first)) << "less is given back";
  EXPECT_FALSE(Admit(41 * kMiB, first));
}

TEST_F(QuotaLedger, AQuotaGoesWithTheLastJobOfItsUser) {
  quota_.ram.most = 10 * kMiB;
  const EntitlementIndex job = Open();
  EXPECT_FALSE(ledger_.SetQuota(kUid, quota_)) << "it is that already";
  ledger_.End(job);
  ledger_.Remove(job);
  EXPECT_FALSE(ledger_.SetQuota(kUid, {})) << "there is no such user";
  quota_ = {};
  EXPECT_EQ(ledger_.AllowedTo(Open()), kArena);
}

}  // namespace
}  // namespace tier::tiering
