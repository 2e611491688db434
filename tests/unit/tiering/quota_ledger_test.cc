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

// What a job of the user holds just now must not bound the parts of the others: it gives what it has beyond its own.
// They wait for that and claim nothing meanwhile: hand-over would take from other users what they may not have.
TEST_F(QuotaLedger, WhatOneJobHoldsDoesNotBoundTheNext) {
  quota_.ram.most = 40 * kMiB;
  const EntitlementIndex first = Open();
  ledger_.AddHeld(first, 40 * kMiB);
  const EntitlementIndex second = Open();
  EXPECT_EQ(ledger_.AllowedTo(second), 20 * kMiB);
  EXPECT_EQ(ledger_.GrowthOf(second, kWindow), Growth::kOwn);
  EXPECT_EQ(ledger_.GrowthOf(first, kWindow), Growth::kNone);
  EXPECT_FALSE(ledger_.MayGrow(second, kWindow));
  EXPECT_TRUE(ledger_.QuotaTaken(second, kWindow));
  EXPECT_FALSE(ledger_.QuotaTaken(first, kWindow)) << "it has its part";
  ledger_.Claim(second, 20 * kMiB, {});
  EXPECT_FALSE(ledger_.anybody_owed());
  ledger_.SetUnbacked(first, ledger_.BeyondQuota(first));
  EXPECT_EQ(ledger_.BytesToGive(first), 20 * kMiB) << "the user's own job gives it";
  EXPECT_EQ(ledger_.BeyondQuota(second), 0u);
}

TEST_F(QuotaLedger, WindowsOfAllJobsOfAUserStayWithinIt) {
  quota_.ram.most = 40 * kMiB;
  const EntitlementIndex first = Open();
  ledger_.AddHeld(first, 36 * kMiB);
  const EntitlementIndex second = Open();
  EXPECT_TRUE(ledger_.MayGrow(second, 4 * kMiB)) << "so much is left";
  EXPECT_FALSE(ledger_.MayGrow(second, 6 * kMiB));
  ledger_.AskBack(first, 10 * kMiB, {});
  EXPECT_FALSE(ledger_.MayGrow(second, 6 * kMiB)) << "its processes have them yet";
  ledger_.TakeBack(first, 10 * kMiB, false);
  EXPECT_TRUE(ledger_.MayGrow(second, 14 * kMiB));
  ledger_.SetKept(first, 2 * kMiB);
  EXPECT_FALSE(ledger_.MayGrow(second, 14 * kMiB)) << "they have some for good";
  EXPECT_EQ(ledger_.BeyondQuota(first), 8 * kMiB);
  ledger_.Claim(second, 20 * kMiB, {});
  EXPECT_EQ(ledger_.ClaimedBy(second), 12 * kMiB) << "what the quota has left";
  ledger_.End(first);
  EXPECT_FALSE(ledger_.MayGrow(second, 14 * kMiB)) << "until its windows have come back";
  ledger_.SubtractHeld(first, 26 * kMiB);
  ledger_.Remove(first);
  EXPECT_TRUE(ledger_.MayGrow(second, 40 * kMiB));
}

TEST_F(QuotaLedger, AWindowLargerThanWhatIsBeyondAPartGoesToo) {
  quota_.ram.most = 40 * kMiB;
  const EntitlementIndex first = Open();
  ledger_.AddHeld(first, 16 * kMiB);
  ledger_.AddHeld(first, 6 * kMiB);
  Open();
  EXPECT_FALSE(ledger_.MayGiveBelow(first, 16 * kMiB)) << "no request waits for it";
  ledger_.SetUnbacked(first, ledger_.BeyondQuota(first));
  EXPECT_EQ(ledger_.BytesToGive(first), 2 * kMiB);
  EXPECT_TRUE(ledger_.MayGiveBelow(first, 16 * kMiB));
  ledger_.SubtractHeld(first, 16 * kMiB);
  EXPECT_FALSE(ledger_.MayGiveBelow(first, 6 * kMiB)) << "it has less than its part now";
  EXPECT_TRUE(ledger_.MayGrow(first, 14 * kMiB));
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
