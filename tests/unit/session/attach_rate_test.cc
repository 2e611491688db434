#include "daemon/session/attach_rate.h"

#include <gtest/gtest.h>

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::TimePoint kStart{seconds(100)};

TEST(AttachRate, LetsABurstInAtOnceAndThenOneEachInterval) {
  AttachRate rate(50);
  for (uint32_t i = 0; i < kAttachBurst; ++i) ASSERT_EQ(rate.Take(1000, kStart), base::Duration{0}) << i;
  for (int i = 1; i <= 100; ++i) ASSERT_EQ(rate.Take(1000, kStart), i * milliseconds(20)) << i;
}

TEST(AttachRate, UsersDoNotWaitForEachOther) {
  AttachRate rate(50);
  for (uint32_t i = 0; i < kAttachBurst + 10; ++i) (void)rate.Take(1000, kStart);
  EXPECT_GT(rate.Take(1000, kStart), base::Duration{0});
  EXPECT_EQ(rate.Take(1001, kStart), base::Duration{0});
}

TEST(AttachRate, TurnsNotTakenAreKeptUpToTheBurst) {
  AttachRate rate(50);
  for (uint32_t i = 0; i < kAttachBurst; ++i) (void)rate.Take(1000, kStart);
  base::TimePoint now = kStart + milliseconds(200);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(rate.Take(1000, now), base::Duration{0}) << i;
  EXPECT_EQ(rate.Take(1000, now), milliseconds(20));
  now = now + seconds(3600);
  for (uint32_t i = 0; i < kAttachBurst; ++i) ASSERT_EQ(rate.Take(1000, now), base::Duration{0}) << i;
  EXPECT_GT(rate.Take(1000, now), base::Duration{0}) << "an hour earns no more than a burst";
}

TEST(AttachRate, OverALongTimeTheRateHolds) {
  AttachRate rate(50);
  uint32_t attached = 0;
  for (base::TimePoint now = kStart; now < kStart + seconds(100);) {
    const base::Duration wait = rate.Take(1000, now).value();
    now = now + wait + milliseconds(1);  // Attach, leave, come again.
    ++attached;
  }
  EXPECT_LE(attached, kAttachBurst + 50 * 100 + 1);
  EXPECT_GE(attached, 50 * 100u);
}

TEST(AttachRate, TurnThatWouldComeTooLateIsNotTaken) {
  AttachRate rate(50);
  uint32_t taken = 0;
  while (rate.Take(1000, kStart)) ASSERT_LT(++taken, 1000u);
  EXPECT_EQ(taken, kAttachBurst + kAttachWaitMax / milliseconds(20));
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(rate.Take(1000, kStart));
  EXPECT_EQ(rate.Take(1000, kStart + kAttachWaitMax), milliseconds(20)) << "those that were refused left no debt";
}

TEST(AttachRate, SlowRateIsPossible) {
  AttachRate rate(1);
  for (uint32_t i = 0; i < kAttachBurst; ++i) (void)rate.Take(1000, kStart);
  EXPECT_EQ(rate.Take(1000, kStart), seconds(1));
}

TEST(AttachRate, AnotherRateHoldsFromThenOn) {
  AttachRate rate(1);
  for (uint32_t i = 0; i < kAttachBurst; ++i) (void)rate.Take(1000, kStart);
  ASSERT_EQ(rate.Take(1000, kStart), seconds(1));
  rate.SetRate(1000);
  for (uint32_t i = 0; i < kAttachBurst; ++i) EXPECT_EQ(rate.Take(1001, kStart), milliseconds(0));
  EXPECT_EQ(rate.Take(1001, kStart), milliseconds(1));
}

TEST(AttachRate, UsersWithoutADebtAreDropped) {
  AttachRate rate(50);
  for (uint32_t uid = 0; uid < 10'000; ++uid) (void)rate.Take(uid, kStart + uid * milliseconds(20));
  EXPECT_LE(rate.users(), 128u);
}

}  // namespace
}  // namespace tier::session
