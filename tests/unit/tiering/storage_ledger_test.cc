// The ledger of SSD space: what a job may have beside the others, by guarantee, limit and quota.
#include "daemon/tiering/tables/storage_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kCapacity = 160 * kMiB;

class StorageLedgerTest : public ::testing::Test {
 protected:
  EntitlementIndex Open(uint32_t uid, Terms terms = {}, uint64_t used = 0) {
    const EntitlementIndex job{next_++};
    ledger_.Open(job, uid, terms, quota_);
    ledger_.AddUsed(job, used);
    return job;
  }
  uint64_t AllowedTo(EntitlementIndex job) const { return ledger_.RoomOf(job, {kCapacity, 0}).allowed; }
  Status Admit(uint32_t uid, EntitlementIndex job, uint64_t bytes) const {
    return ledger_.AdmitGuarantee(uid, job, bytes, {kCapacity, 0}, quota_);
  }
  void TearDown() override { ledger_.CheckInvariants(); }

  StorageLedger ledger_;
  QuotaLimit quota_;  // Of every user.
  uint32_t next_ = 0;
};

TEST_F(StorageLedgerTest, AJobAloneLeavesASixteenthForTheNext) {
  const EntitlementIndex first = Open(1);
  EXPECT_EQ(AllowedTo(first), 150 * kMiB);
  ledger_.AddUsed(first, 150 * kMiB);
  EXPECT_EQ(AllowedTo(first), 150 * kMiB) << "what it has changes nothing";
  const EntitlementIndex second = Open(2);
  EXPECT_EQ(AllowedTo(second), 10 * kMiB - 10 * kMiB / 16);
  EXPECT_EQ(ledger_.RoomOf(second, {kCapacity, 0}).others, 150 * kMiB);
  const EntitlementIndex own = Open(1);
  EXPECT_EQ(AllowedTo(own), 5 * kMiB) << "its user may have all but a thirty-second";
}

TEST_F(StorageLedgerTest, WhatIsLeftForTheNextUserBoundsAJobAndIsNamed) {
  const EntitlementIndex first = Open(1, {}, 140 * kMiB);
  EXPECT_FALSE(ledger_.RoomOf(first, {kCapacity, 0}).by_user) << "a sixteenth is more than a thirty-second";
  const EntitlementIndex second = Open(1);
  const EntitlementIndex other = Open(2, {}, kMiB);
  const StorageLedger::Room room = ledger_.RoomOf(second, {kCapacity, 0});
  EXPECT_TRUE(room.by_user);
  EXPECT_EQ(room.allowed, 159 * kMiB - 159 * kMiB / 32 - 140 * kMiB);
  EXPECT_TRUE(room.others == 141 * kMiB && room.of_user == 140 * kMiB);
  EXPECT_FALSE(ledger_.RoomOf(other, {kCapacity, 0}).by_user);
  ledger_.Set(second, {.limit_bytes = kMiB});
  EXPECT_FALSE(ledger_.RoomOf(second, {kCapacity, 0}).by_user) << "its limit does";
  ledger_.Set(second, {.guarantee_bytes = 16 * kMiB});
  EXPECT_FALSE(ledger_.RoomOf(second, {kCapacity, 0}).by_user) << "it may have its guarantee";
}

TEST_F(StorageLedgerTest, ManyJobsOfOneUserLeaveSomethingForTheNextUser) {
  for (int i = 0; i < 64; ++i) {
    const EntitlementIndex job = Open(1);
    ledger_.AddUsed(job, AllowedTo(job));
  }
  EXPECT_GE(AllowedTo(Open(2)), 4 * kMiB);
}

TEST_F(StorageLedgerTest, AGuaranteeOfWhatAJobHasDoesNotLetItGrow) {
  const EntitlementIndex job = Open(1);
  for (int i = 0; i < 8; ++i) {
    const uint64_t allowed = AllowedTo(job);
    ledger_.AddUsed(job, allowed - ledger_.UsedBy(job));
    ASSERT_TRUE(Admit(1, job, allowed));
    ledger_.Set(job, {.guarantee_bytes = allowed});
  }
  EXPECT_EQ(AllowedTo(job), 150 * kMiB);
}

TEST_F(StorageLedgerTest, AGuaranteeIsKeptAgainstOthersAndLeavesNoPartOfIt) {
  const EntitlementIndex guaranteed = Open(1, {.guarantee_bytes = 80 * kMiB});
  const EntitlementIndex other = Open(2);
  EXPECT_EQ(AllowedTo(other), 75 * kMiB);
  EXPECT_EQ(AllowedTo(guaranteed), 150 * kMiB);
  ledger_.AddUsed(other, 75 * kMiB);
  EXPECT_EQ(AllowedTo(guaranteed), 80 * kMiB) << "all but a sixteenth would be less";
}

TEST_F(StorageLedgerTest, AGuaranteeIsGivenWhereOthersLeaveItAndNotBeyond) {
  const EntitlementIndex first = Open(1, {}, 100 * kMiB);
  EXPECT_TRUE(Admit(2, kNoEntitlement, 50 * kMiB));
  const Status refused = Admit(2, kNoEntitlement, 51 * kMiB);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("other jobs have or are guaranteed 100 MiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("50 MiB are left"));
  EXPECT_TRUE(Admit(1, first, 150 * kMiB)) << "its own bytes are not in its way";
  EXPECT_FALSE(Admit(1, first, 151 * kMiB));
  ledger_.AddUsed(first, 55 * kMiB);
  EXPECT_TRUE(Admit(1, first, 155 * kMiB)) << "it has that much already";
}

TEST_F(StorageLedgerTest, AGuaranteeIsLoweredWhateverTheCapacityIs) {
  const EntitlementIndex job = Open(1, {.guarantee_bytes = 100 * kMiB});
  EXPECT_TRUE(ledger_.AdmitGuarantee(1, job, 60 * kMiB, {20 * kMiB, 0}, {}));
  EXPECT_FALSE(ledger_.AdmitGuarantee(1, job, 101 * kMiB, {20 * kMiB, 0}, {}));
}

TEST_F(StorageLedgerTest, ALimitBoundsAJobAndIsNamed) {
  const EntitlementIndex job = Open(1, {.limit_bytes = 20 * kMiB});
  EXPECT_EQ(AllowedTo(job), 20 * kMiB);
  EXPECT_TRUE(ledger_.RoomOf(job, {kCapacity, 0}).by_limit);
  ledger_.Set(job, {});
  EXPECT_EQ(AllowedTo(job), 150 * kMiB);
  EXPECT_FALSE(ledger_.RoomOf(job, {kCapacity, 0}).by_limit);
}

TEST_F(StorageLedgerTest, AQuotaBoundsAllJobsOfAUserTogether) {
  quota_.most = 64 * kMiB;
  const EntitlementIndex first = Open(1, {.guarantee_bytes = 40 * kMiB});
  const EntitlementIndex second = Open(1, {}, 10 * kMiB);
  const EntitlementIndex other = Open(2);
  EXPECT_EQ(AllowedTo(second), 24 * kMiB);
  EXPECT_TRUE(ledger_.RoomOf(second, {kCapacity, 0}).by_quota);
  EXPECT_EQ(AllowedTo(first), 54 * kMiB);
  EXPECT_EQ(AllowedTo(other), 64 * kMiB);
  const Status refused = Admit(1, kNoEntitlement, 15 * kMiB);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("jobs.max_ssd_per_uid"));
  EXPECT_TRUE(Admit(1, kNoEntitlement, 14 * kMiB));
  EXPECT_TRUE(Admit(3, kNoEntitlement, 15 * kMiB));
}

TEST_F(StorageLedgerTest, AQuotaIsOfOneUserAndChangesForAllItsJobs) {
  const EntitlementIndex first = Open(1, {}, 30 * kMiB);
  const EntitlementIndex second = Open(1, {}, 10 * kMiB);
  const EntitlementIndex other = Open(2);
  ledger_.SetQuota(1, {.most = 60 * kMiB, .origin = {.level = QuotaLevel::kUser, .at_run_time = true, .id = 1}});
  EXPECT_EQ(AllowedTo(first), 50 * kMiB);
  EXPECT_EQ(AllowedTo(second), 30 * kMiB);
  EXPECT_FALSE(ledger_.RoomOf(other, {kCapacity, 0}).by_quota);
  ledger_.SetQuota(1, {.most = 20 * kMiB});
  EXPECT_EQ(AllowedTo(first), 10 * kMiB) << "what it has stays, and it gets no more";
  EXPECT_EQ(AllowedTo(second), 0u);
  ledger_.SetQuota(1, {});
  EXPECT_FALSE(ledger_.RoomOf(first, {kCapacity, 0}).by_quota);
  ledger_.SetQuota(77, {.most = 1});  // Of a user without jobs.
}

TEST_F(StorageLedgerTest, AQuotaOfNothingAllowsNothing) {
  quota_.most = 0;
  EXPECT_EQ(AllowedTo(Open(1)), 0u);
  EXPECT_FALSE(Admit(1, kNoEntitlement, 1));
}

TEST_F(StorageLedgerTest, WhereTheCapacityFallsNothingIsTakenAndNothingMoreGiven) {
  const EntitlementIndex first = Open(1, {.guarantee_bytes = 60 * kMiB}, 20 * kMiB);
  const EntitlementIndex second = Open(2, {}, 70 * kMiB);
  EXPECT_EQ(ledger_.RoomOf(second, {100 * kMiB, 0}).allowed, 40 * kMiB - 40 * kMiB / 16) << "less than it has";
  EXPECT_EQ(ledger_.RoomOf(first, {100 * kMiB, 0}).allowed, 30 * kMiB) << "less than it is guaranteed";
  EXPECT_EQ(ledger_.RoomOf(first, {0, 0}).allowed, 0u);
}

TEST_F(StorageLedgerTest, AnEndedJobClaimsWhatItStillUses) {
  const EntitlementIndex ended = Open(1, {.guarantee_bytes = 60 * kMiB}, 20 * kMiB);
  const EntitlementIndex other = Open(2);
  EXPECT_EQ(ledger_.claimed(), 60 * kMiB);
  ledger_.End(ended);
  EXPECT_EQ(ledger_.claimed(), 20 * kMiB);
  ledger_.SubtractUsed(ended, 20 * kMiB);
  ledger_.Remove(ended);
  EXPECT_EQ(ledger_.claimed(), 0u);
  EXPECT_EQ(AllowedTo(other), 150 * kMiB);
  ledger_.Open(ended, 3, {}, {});  // Its index is given again.
  EXPECT_EQ(ledger_.UsedBy(ended), 0u);
}

}  // namespace
}  // namespace tier::tiering
