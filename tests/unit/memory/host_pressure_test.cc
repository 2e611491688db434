// When the host counts as short of memory, and how far the arena is lowered. Time is the test's.
#include "daemon/memory/host_pressure.h"

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::memory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Cause = HostPressure::Cause;

constexpr base::Duration kStep = milliseconds(250);

class HostPressureTest : public testing::Test {
 protected:
  HostPressureTest() { SetUnused(64 * kGiB, kGiB); }
  void SetUnused(uint64_t total, uint64_t unused) {
    reading_.memory_total = total;
    reading_.memory_free = unused;
  }
  // Every reading from now on: tasks of the machine wait for so much of the time.
  void SetStalls(double some, double full) { some_ = some, full_ = full; }
  void SetGroupStalls(double some, double full) { group_some_ = some, group_full_ = full; }
  static void Advance(MemoryStalls* stalls, double some, double full) {
    const double us = std::chrono::duration<double, std::micro>(kStep).count();
    stalls->known = true;
    stalls->some_total_us = stalls->some_total_us.value_or(0) + static_cast<uint64_t>(some * us);
    stalls->full_total_us = stalls->full_total_us.value_or(0) + static_cast<uint64_t>(full * us);
  }
  void Note(uint64_t missing = 0, uint64_t too_many = 0) {
    now_ = now_ + kStep;
    Advance(&reading_.stalls, some_, full_);
    Advance(&reading_.cgroup.stalls, group_some_, group_full_);
    arena_.missing_bytes = missing;
    arena_.too_many_bytes = too_many;
    pressure_.Note(reading_, arena_, now_);
  }
  // Readings for so long; the arena goes down to the ceiling between them.
  void Run(base::Duration time) {
    for (const base::TimePoint end = now_ + time; now_ < end;) {
      Note();
      arena_.bytes = std::min(arena_.bytes, pressure_.ceiling());
    }
  }

  HostReading reading_;
  HostPressure::Arena arena_{.bytes = 32 * kGiB, .step_bytes = 2 * kMiB, .reserve_bytes = 4 * kGiB};
  HostPressure pressure_;
  base::TimePoint now_{seconds(100)};
  double some_ = 0;
  double full_ = 0;
  double group_some_ = 0;
  double group_full_ = 0;
};

TEST_F(HostPressureTest, ACalmHostHasNoCeiling) {
  Run(seconds(5));
  EXPECT_EQ(pressure_.ceiling(), kUnlimited);
  EXPECT_FALSE(pressure_.active() || pressure_.gives());
}

TEST_F(HostPressureTest, GivesAsMuchAsTheReserveMissesOnceAQuarterOfItIsGone) {
  Note(kGiB);
  EXPECT_FALSE(pressure_.active()) << "a quarter";
  Note(kGiB + 1);
  ASSERT_TRUE(pressure_.gives());
  EXPECT_EQ(pressure_.cause(), Cause::kRoom);
  EXPECT_EQ(pressure_.ceiling(), 31 * kGiB - 1);
  arena_.bytes = 31 * kGiB - 1;
  Note(kMiB);
  EXPECT_EQ(pressure_.ceiling(), 31 * kGiB - 1 - kMiB) << "then all of the reserve";
  EXPECT_EQ(pressure_.count(), 1U);
}

TEST_F(HostPressureTest, TheCeilingFallsOnlyAndGoesAfterACalmWhile) {
  Note(8 * kGiB);
  arena_.bytes = 24 * kGiB;
  Run(kCalmFirst - 2 * kStep);
  EXPECT_EQ(pressure_.ceiling(), 24 * kGiB);
  Note(kMiB);  // Short again.
  Run(kCalmFirst - kStep);
  EXPECT_TRUE(pressure_.active());
  Run(kStep);
  EXPECT_FALSE(pressure_.active());
}

TEST_F(HostPressureTest, AShortageThatComesBackSoonHoldsTheArenaDownLonger) {
  base::Duration calm = kCalmFirst;
  for (int i = 0; i < 8; ++i) {
    arena_.bytes = 32 * kGiB;
    Note(8 * kGiB);
    ASSERT_TRUE(pressure_.active());
    Run(calm - kStep);
    ASSERT_TRUE(pressure_.active()) << i;
    Run(kStep);
    ASSERT_FALSE(pressure_.active()) << i;
    calm = std::min(2 * calm, kCalmMax);
  }
  EXPECT_EQ(pressure_.count(), 8U);
  Run(2 * kCalmMax);
  Note(8 * kGiB);
  Run(kCalmFirst);
  EXPECT_FALSE(pressure_.active()) << "it stayed away for long";
}

TEST_F(HostPressureTest, ItStaysAboveTheMinimum) {
  arena_.least_bytes = 30 * kGiB;
  Note(100 * kGiB);
  EXPECT_EQ(pressure_.ceiling(), 30 * kGiB);
  arena_.least_bytes = 40 * kGiB;  // More than there is: it may grow to that.
  HostPressure fresh;
  fresh.Note(reading_, arena_, now_);
  EXPECT_EQ(fresh.ceiling(), 40 * kGiB);
}

TEST_F(HostPressureTest, WindowsBesideWhichTheDaemonsMemoryDoesNotFitGo) {
  Note(0, 3 * kMiB);
  EXPECT_EQ(pressure_.ceiling(), 32 * kGiB - 3 * kMiB);
}

TEST_F(HostPressureTest, StallsStopGrowthAtOnceAndGiveFromTheSecondReadingOn) {
  Note();
  SetStalls(0.9, 0.05);
  Note();
  EXPECT_EQ(pressure_.ceiling(), 32 * kGiB);
  EXPECT_FALSE(pressure_.gives());
  Note();
  EXPECT_TRUE(pressure_.gives());
  EXPECT_EQ(pressure_.cause(), Cause::kHostStalls);
  EXPECT_EQ(pressure_.ceiling(), 31 * kGiB) << "noticed after half a second";
  Note();
  EXPECT_EQ(pressure_.ceiling(), 31 * kGiB) << "the first part is not back yet";
}

TEST_F(HostPressureTest, OneStalledReadingIsNotEnough) {
  for (int i = 0; i < 20; ++i) {
    SetStalls(i % 2 == 0 ? 0.9 : 0, 0);
    Note();
  }
  EXPECT_FALSE(pressure_.gives());
}

TEST_F(HostPressureTest, AllTasksThatWaitCountSooner) {
  SetStalls(0.12, 0.12);
  Run(seconds(1));
  EXPECT_TRUE(pressure_.gives());
}

TEST_F(HostPressureTest, BetweenTheThresholdsNothingBeginsAndNothingEnds) {
  SetStalls(0.2, 0.05);
  Run(seconds(60));
  EXPECT_FALSE(pressure_.active());
  SetStalls(0.9, 0.5);
  Run(seconds(1));
  const uint64_t ceiling = pressure_.ceiling();
  SetStalls(0.2, 0.05);
  Run(seconds(60));
  EXPECT_EQ(pressure_.ceiling(), ceiling);
  SetStalls(0.01, 0);
  Run(kCalmFirst + kStep);
  EXPECT_FALSE(pressure_.active());
}

TEST_F(HostPressureTest, StallsAloneTakeHalfAtMost) {
  SetStalls(1, 1);
  Run(seconds(120));
  EXPECT_EQ(pressure_.ceiling(), 16 * kGiB);
  Note(4 * kGiB);
  EXPECT_EQ(pressure_.ceiling(), 12 * kGiB) << "what the reserve misses goes all the same";
}

// A thirty-second of a small arena every 250 ms would be less.
TEST_F(HostPressureTest, StallsGiveAGigabyteASecondOfASmallArenaToo) {
  for (const uint64_t arena : {uint64_t{3 * kGiB}, uint64_t{6 * kGiB}}) {
    pressure_ = HostPressure();
    arena_.bytes = arena;
    SetStalls(0, 0);
    Note();
    SetStalls(1, 1);
    Run((kStalledReadings - 1) * kStep);
    ASSERT_FALSE(pressure_.gives());
    Run(seconds(1));
    EXPECT_GE(arena - pressure_.ceiling(), 1'000'000'000U) << "of " << arena;
    Run(seconds(10));
    EXPECT_EQ(pressure_.ceiling(), arena / 2) << "and half at most";
  }
}

TEST_F(HostPressureTest, StallsLeaveTheMinimumOfASmallArena) {
  arena_.bytes = 300 * kMiB;
  arena_.least_bytes = 200 * kMiB;
  Note();
  SetStalls(1, 1);
  Run(seconds(10));
  EXPECT_EQ(pressure_.ceiling(), 200 * kMiB);
}

TEST_F(HostPressureTest, StallsOfAMachineWithMuchUnusedMemoryHaveOtherReasons) {
  SetUnused(64 * kGiB, 8 * kGiB);
  SetStalls(1, 1);
  SetGroupStalls(1, 1);
  Run(seconds(10));
  EXPECT_FALSE(pressure_.active());
}

TEST_F(HostPressureTest, StallsOfTheGroupCountWhereItsLimitIsNear) {
  SetUnused(64 * kGiB, 32 * kGiB);
  reading_.cgroup.unused = kGiB;
  reading_.cgroup.unused_limit = 16 * kGiB;
  SetStalls(1, 1);
  Run(seconds(10));
  EXPECT_FALSE(pressure_.active()) << "of the machine";
  SetGroupStalls(1, 1);
  Run(seconds(1));
  EXPECT_TRUE(pressure_.gives());
  EXPECT_EQ(pressure_.cause(), Cause::kCgroupStalls);
}

TEST_F(HostPressureTest, WithoutTotalsTheAverageCounts) {
  reading_.stalls = {.some_avg10 = 50, .full_avg10 = 0, .known = true};
  for (int i = 0; i < 2; ++i) pressure_.Note(reading_, arena_, now_ = now_ + kStep);
  EXPECT_TRUE(pressure_.gives());
  HostPressure fresh;
  reading_.stalls.some_avg10 = 20;
  for (int i = 0; i < 4; ++i) fresh.Note(reading_, arena_, now_ = now_ + kStep);
  EXPECT_FALSE(fresh.active());
}

TEST_F(HostPressureTest, TotalsThatFallAreNotBelieved) {
  SetStalls(1, 1);
  Note();
  reading_.stalls.some_total_us = 0;  // Another name space's file, say.
  reading_.stalls.full_total_us = 0;
  pressure_.Note(reading_, arena_, now_ = now_ + kStep);
  EXPECT_FALSE(pressure_.gives());
}

TEST_F(HostPressureTest, AHostThatCannotBeReadIsNotShort) {
  arena_.missing_bytes = 64 * kGiB;
  pressure_.Note({}, arena_, now_);
  EXPECT_FALSE(pressure_.active());
}

}  // namespace
}  // namespace tier::memory
