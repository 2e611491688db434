// The ledger of entitlement: whose turn it is for a window, what is asked back, and what a host that is short changes.
#include "daemon/tiering/tables/ledger.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

using std::chrono::milliseconds;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr uint64_t kArena = 64 * kMiB;  // Of it 4 MiB are promised to nobody.

class LedgerTest : public ::testing::Test {
 protected:
  EntitlementIndex Open(uint32_t uid, uint64_t guarantee, uint64_t held) {
    const EntitlementIndex job = ledger_.Open(JobId{next_++}, uid, {.guarantee_bytes = guarantee}, {});
    ledger_.SetLive(job, true);
    ledger_.AddHeld(job, held);
    return job;
  }
  bool MayGrow(EntitlementIndex job) const { return ledger_.MayGrow(job, kWindow); }
  void TearDown() override { ledger_.CheckInvariants(); }

  Ledger ledger_{kArena, {.block = kWindow, .slot = kWindow}};
  uint64_t next_ = 1;
  base::TimePoint now_{std::chrono::seconds(1)};
};

TEST_F(LedgerTest, WhileAnybodyIsOwedOnlyTheLargestDeficitGrows) {
  const EntitlementIndex rich = Open(1, 8 * kMiB, 40 * kMiB);
  const EntitlementIndex near = Open(2, 16 * kMiB, 14 * kMiB);
  const EntitlementIndex far = Open(3, 20 * kMiB, 10 * kMiB);
  ledger_.SetHost(kArena, kArena);
  EXPECT_TRUE(MayGrow(rich)) << "nobody is owed";
  ledger_.Claim(near, kWindow, now_);
  EXPECT_FALSE(MayGrow(rich));
  EXPECT_TRUE(MayGrow(near) && MayGrow(far));
  ledger_.Claim(far, 4 * kMiB, now_);
  EXPECT_FALSE(MayGrow(near)) << "the other lacks more";
  ledger_.SetHost(kArena - 6 * kMiB, kArena);
  EXPECT_TRUE(MayGrow(near)) << "there is enough for both";
  EXPECT_FALSE(MayGrow(rich));
  ledger_.AddHeld(far, kWindow);
  ledger_.AddHeld(far, kWindow);
  ledger_.AddHeld(near, kWindow);
  EXPECT_FALSE(ledger_.anybody_owed()) << "they have what they asked for";
}

TEST_F(LedgerTest, AWishIsForIdleMemoryAndComesAfterAllThatIsOwed) {
  const EntitlementIndex idle = Open(1, 20 * kMiB, 20 * kMiB);
  const EntitlementIndex user = Open(2, 16 * kMiB, 30 * kMiB);
  const EntitlementIndex other = Open(3, 16 * kMiB, 10 * kMiB);
  ledger_.SetHost(kArena, kArena);
  ledger_.SetIdle(idle, true);
  EXPECT_EQ(ledger_.BytesToGive(idle), 0U);
  EXPECT_TRUE(ledger_.Wish(user, kMiB, now_) && ledger_.lends());
  EXPECT_FALSE(ledger_.Wish(other, kWindow, now_)) << "one at a time";
  EXPECT_EQ(ledger_.BytesToAskBack(), kWindow);
  EXPECT_EQ(ledger_.BytesToGive(idle), 20 * kMiB);
  EXPECT_EQ(ledger_.BytesToGive(other), 0U) << "it is not idle";
  ledger_.Claim(other, kWindow, now_);
  EXPECT_FALSE(ledger_.lends());
  EXPECT_EQ(ledger_.BytesToGive(idle), 0U) << "it has no surplus";
  ledger_.DropClaim(other);
  ledger_.SetHost(kArena, kArena - kWindow);
  EXPECT_FALSE(ledger_.lends()) << "the host comes first";
  ledger_.SetHost(kArena, kArena);
  EXPECT_FALSE(ledger_.ExpireWish(now_ + kClaimLifetime / 2));
  EXPECT_TRUE(ledger_.ExpireWish(now_ + kClaimLifetime));
  ledger_.RefuseWishes(now_ + std::chrono::seconds(1));
  EXPECT_FALSE(ledger_.Wish(user, kMiB, now_));
  EXPECT_TRUE(ledger_.Wish(user, kMiB, now_ + std::chrono::seconds(1)));
}

TEST_F(LedgerTest, AClaimEndsByItselfAndIsNeverMoreThanTheDeficit) {
  const EntitlementIndex rich = Open(1, 8 * kMiB, 56 * kMiB);
  const EntitlementIndex poor = Open(2, 8 * kMiB, 4 * kMiB);
  ledger_.SetHost(60 * kMiB, 60 * kMiB);
  ledger_.Claim(rich, kWindow, now_);
  EXPECT_FALSE(ledger_.anybody_owed()) << "it has all that it is promised";
  ledger_.Claim(poor, 40 * kMiB, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), 4 * kMiB);
  ledger_.RenewClaim(poor, now_ + milliseconds(50));
  EXPECT_FALSE(ledger_.ExpireClaims(now_ + kClaimLifetime));
  EXPECT_TRUE(ledger_.ExpireClaims(now_ + milliseconds(50) + kClaimLifetime));
  EXPECT_FALSE(ledger_.anybody_owed());
}

TEST_F(LedgerTest, WindowsThatAreOverdueDoNotCountAsComing) {
  const EntitlementIndex rich = Open(1, 8 * kMiB, 60 * kMiB);
  const EntitlementIndex poor = Open(2, 8 * kMiB, 4 * kMiB);
  ledger_.SetHost(kArena, kArena);
  ledger_.Claim(poor, 4 * kMiB, now_);
  ledger_.AskBack(rich, 4 * kMiB, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), 0u);
  EXPECT_EQ(ledger_.HeldBy(rich), 56 * kMiB);
  ledger_.MissDeadline(rich, 4 * kMiB);
  EXPECT_EQ(ledger_.BytesToAskBack(), 4 * kMiB);
  const auto debtors = ledger_.ListDebtors(3);
  ASSERT_EQ(debtors.size(), 1u);
  EXPECT_TRUE(debtors[0].id == JobId{1} && debtors[0].returning == 4 * kMiB && debtors[0].since == now_);
  ledger_.TakeBack(rich, 4 * kMiB, true);
  EXPECT_EQ(ledger_.returning_bytes(), 0u);
  ledger_.AddClosing(4 * kMiB);
  EXPECT_EQ(ledger_.BytesToAskBack(), 0u) << "the devices give it up soon";
  ledger_.SubtractClosing(4 * kMiB);
  EXPECT_EQ(ledger_.BytesToAskBack(), 4 * kMiB) << "somebody else has it";
}

TEST_F(LedgerTest, LessThanAWindowOfSurplusGoesOnlyWhereItIsMissedMore) {
  const EntitlementIndex holder = Open(1, 7 * kMiB, 8 * kMiB);
  const EntitlementIndex near = Open(2, 9 * kMiB, 8 * kMiB);
  EXPECT_TRUE(ledger_.BytesToGive(holder) == 0 && !ledger_.MayGiveBelow(holder, kWindow)) << "nobody is owed";
  ledger_.Claim(near, kWindow, now_);
  EXPECT_EQ(ledger_.BytesToGive(holder), kMiB) << "no window is so small";
  EXPECT_FALSE(ledger_.MayGiveBelow(holder, kWindow)) << "they would only change places";
  const EntitlementIndex empty = Open(3, kMiB, 0);
  ledger_.DropClaim(near);
  ledger_.Claim(empty, kWindow, now_);
  EXPECT_TRUE(ledger_.MayGiveBelow(holder, kWindow)) << "without any it cannot work";
}

TEST_F(LedgerTest, AShortHostIsADebtAndChangesNoPromise) {
  const EntitlementIndex rich = Open(1, 0, 56 * kMiB);
  const EntitlementIndex poor = Open(2, 0, 4 * kMiB);
  ledger_.SetHost(60 * kMiB, 40 * kMiB);
  EXPECT_EQ(ledger_.host_debt(), 20 * kMiB);
  EXPECT_FALSE(MayGrow(rich) || MayGrow(poor));
  EXPECT_EQ(ledger_.PromisedTo(poor), 30 * kMiB);
  EXPECT_EQ(ledger_.GrowthOf(poor, kWindow), Growth::kOwn) << "when the host has memory again";
  EXPECT_EQ(ledger_.BytesToAskBack(), 20 * kMiB);
  EXPECT_EQ(ledger_.BytesToGive(rich), 26 * kMiB) << "its surplus first";
  EXPECT_EQ(ledger_.BytesToGive(poor), 0u);
  ledger_.SetDebtDepth(DebtDepth::kPromise);
  EXPECT_EQ(ledger_.BytesToGive(poor), 4 * kMiB) << "an equal part is no guarantee";
  ledger_.SetDebtDepth(DebtDepth::kSurplus);
  ledger_.Claim(poor, kWindow, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), 22 * kMiB) << "what comes back pays the debt first";
}

TEST_F(LedgerTest, ARefusedGuaranteeSaysWhoHasTheRest) {
  Open(7, 40 * kMiB, 0);
  Open(8, 0, 0);
  const Status refused = ledger_.AdmitGuarantee(9, kNoEntitlement, kMiB, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("user 7 has 40 MiB, user 8 has 20 MiB"), std::string::npos)
      << refused.error().message;
}

// Block windows of 8 MiB, slot windows of 2 MiB; 8 MiB are promised to nobody.
class LedgerOfTwoKinds : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlockWindow = 8 * kMiB;
  static constexpr uint64_t kSlotWindow = 2 * kMiB;

  EntitlementIndex Open(Terms terms, uint64_t held) {
    const EntitlementIndex job = ledger_.Open(JobId{next_}, static_cast<uint32_t>(next_), terms, {});
    ++next_;
    ledger_.SetLive(job, true);
    ledger_.AddHeld(job, held);
    return job;
  }
  void TearDown() override { ledger_.CheckInvariants(); }

  Ledger ledger_{kArena, {.block = kBlockWindow, .slot = kSlotWindow}};
  uint64_t next_ = 1;
  base::TimePoint now_{std::chrono::seconds(1)};
};

TEST_F(LedgerOfTwoKinds, AClaimIsCountedInSlotWindows) {
  Open({.guarantee_bytes = 40 * kMiB}, 48 * kMiB);
  const EntitlementIndex poor = Open({.guarantee_bytes = 15 * kMiB}, kBlockWindow);
  ledger_.SetHost(kArena, kArena);
  ledger_.Claim(poor, kBlockSize, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), kSlotWindow) << "one slot window will do";
  ledger_.Claim(poor, 40 * kMiB, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), 8 * kMiB) << "of 7 MiB that it lacks";
  ledger_.SetHost(kArena - 3 * kMiB, kArena);
  EXPECT_EQ(ledger_.BytesToAskBack(), 6 * kMiB) << "of what the arena has left, one slot window";
  ledger_.Set(poor, {.guarantee_bytes = 9 * kMiB});
  EXPECT_EQ(ledger_.BytesToAskBack(), 0u) << "the promise fell, and the claim with it";
}

TEST_F(LedgerOfTwoKinds, WhileOthersAreOwedNoWindowReachesBeyondAPromise) {
  const EntitlementIndex rich = Open({.guarantee_bytes = 28 * kMiB}, 40 * kMiB);
  const EntitlementIndex far = Open({.guarantee_bytes = 15 * kMiB}, kBlockWindow);
  const EntitlementIndex near = Open({.guarantee_bytes = 12 * kMiB}, kBlockWindow);
  ledger_.SetHost(kArena - kBlockWindow, kArena);
  EXPECT_TRUE(ledger_.MayGrow(far, kBlockWindow)) << "nobody is owed";
  ledger_.Claim(far, 8 * kMiB, now_);
  ledger_.Claim(near, 4 * kMiB, now_);
  EXPECT_TRUE(ledger_.MayGrow(far, kBlockWindow)) << "7 MiB and a part of the last slot window";
  EXPECT_FALSE(ledger_.MayGrow(near, kBlockWindow)) << "4 MiB of it are owed to the other";
  EXPECT_FALSE(ledger_.MayGrow(near, kSlotWindow)) << "the other comes first";
  EXPECT_TRUE(ledger_.Overshoots(near, kBlockWindow));
  EXPECT_FALSE(ledger_.Overshoots(near, kSlotWindow) || ledger_.Overshoots(far, kSlotWindow));
  ledger_.AddHeld(far, kBlockWindow);
  ledger_.SetHost(kArena, kArena);
  EXPECT_TRUE(ledger_.MayGrow(near, kSlotWindow));
  EXPECT_FALSE(ledger_.MayGrow(near, kBlockWindow) || ledger_.MayGrow(rich, kSlotWindow));
}

TEST_F(LedgerOfTwoKinds, ASurplusOfASlotWindowCanBeGiven) {
  const EntitlementIndex holder = Open({.guarantee_bytes = 12 * kMiB}, 2 * kBlockWindow);
  const EntitlementIndex poor = Open({.guarantee_bytes = 12 * kMiB}, kBlockWindow);
  EXPECT_EQ(ledger_.BytesToGive(holder), 0u) << "nobody is owed";
  ledger_.SetHost(kArena, kArena);
  ledger_.Claim(poor, 4 * kMiB, now_);
  EXPECT_EQ(ledger_.BytesToGive(holder), 2 * kSlotWindow);
  EXPECT_FALSE(ledger_.MayGiveBelow(holder, kBlockWindow)) << "they would only change places";
}

TEST_F(LedgerTest, TheDebtReachesIntoPromisesBeforeGuarantees) {
  const EntitlementIndex equal = Open(1, 0, 10 * kMiB);
  const EntitlementIndex guaranteed = Open(2, 20 * kMiB, 24 * kMiB);
  const auto gives = [&](DebtDepth depth) {
    ledger_.SetDebtDepth(depth);
    return std::pair(ledger_.BytesToGive(equal), ledger_.BytesToGive(guaranteed));
  };
  const auto holders = [&] {
    std::vector<JobId> listed;
    ledger_.ListHolders(&listed);
    return listed.size();
  };
  EXPECT_EQ(gives(DebtDepth::kAll), std::pair(uint64_t{0}, uint64_t{0})) << "there is no debt";
  ledger_.SetHost(34 * kMiB, 30 * kMiB);
  EXPECT_EQ(gives(DebtDepth::kSurplus), std::pair(uint64_t{0}, 4 * kMiB));
  EXPECT_EQ(holders(), 1u);
  EXPECT_EQ(gives(DebtDepth::kPromise), std::pair(10 * kMiB, 4 * kMiB));
  EXPECT_EQ(holders(), 2u);
  EXPECT_EQ(gives(DebtDepth::kAll), std::pair(10 * kMiB, 24 * kMiB));
  ledger_.End(equal);
  EXPECT_EQ(gives(DebtDepth::kAll).first, 0u) << "that comes by itself";
}

// E-12: the maximum is stable, and what the host is short of is a debt, whatever the kinds of the windows.
TEST_F(LedgerOfTwoKinds, AShortHostIsADebtInWindowsOfBothKindsAndChangesNoPromise) {
  const EntitlementIndex rich = Open({}, 5 * kBlockWindow + 2 * kSlotWindow);  // 44 MiB.
  const EntitlementIndex poor = Open({}, kBlockWindow + kSlotWindow);          // 10 MiB.
  constexpr uint64_t kOwned = 54 * kMiB;
  for (const uint64_t reachable : {kArena, uint64_t{40 * kMiB}, uint64_t{11 * kMiB}, uint64_t{0}}) {
    ledger_.SetHost(kOwned, reachable);
    EXPECT_EQ(ledger_.host_debt(), kOwned - std::min(kOwned, reachable)) << reachable;
    EXPECT_EQ(ledger_.arena_bytes(), kArena) << reachable;
    EXPECT_EQ(ledger_.PromisedTo(rich), 28 * kMiB) << reachable;
    EXPECT_EQ(ledger_.PromisedTo(poor), 28 * kMiB) << reachable;
    EXPECT_EQ(ledger_.BytesToAskBack(), ledger_.host_debt());
    for (const uint64_t window : {kBlockWindow, kSlotWindow}) {
      EXPECT_EQ(ledger_.MayGrow(poor, window), reachable == kArena) << reachable;
      EXPECT_EQ(ledger_.GrowthOf(poor, window), Growth::kOwn) << "when the host has memory again";
    }
  }
  ledger_.SetHost(kOwned, 40 * kMiB);
  ledger_.Claim(poor, 3 * kMiB, now_);
  EXPECT_EQ(ledger_.BytesToAskBack(), 14 * kMiB + 2 * kSlotWindow) << "the debt, and what it asked in slot windows";
  EXPECT_FALSE(ledger_.MayGrow(poor, kSlotWindow)) << "what comes back pays the debt first";
  ledger_.SubtractHeld(rich, 2 * kBlockWindow);  // 38 MiB are left, of 40 MiB.
  ledger_.SetHost(kOwned - 2 * kBlockWindow, 40 * kMiB);
  EXPECT_EQ(ledger_.host_debt(), 0u);
  EXPECT_EQ(ledger_.BytesToAskBack(), kSlotWindow) << "a slot window fits, one more does not";
  EXPECT_TRUE(ledger_.MayGrow(poor, kSlotWindow));
}

TEST_F(LedgerOfTwoKinds, ALimitIsRoundedUpOncePerKind) {
  const EntitlementIndex job = Open({.limit_bytes = 12 * kMiB}, kBlockWindow);
  EXPECT_EQ(ledger_.GrowthOf(job, kBlockWindow), Growth::kOwn);
  ledger_.AddHeld(job, kBlockWindow);
  EXPECT_EQ(ledger_.GrowthOf(job, kBlockWindow), Growth::kNone);
  EXPECT_NE(ledger_.GrowthOf(job, kSlotWindow), Growth::kNone);
  ledger_.AddHeld(job, kSlotWindow);
  EXPECT_EQ(ledger_.GrowthOf(job, kSlotWindow), Growth::kNone);
}

}  // namespace
}  // namespace tier::tiering
