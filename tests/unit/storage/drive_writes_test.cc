#include "daemon/storage/drive_writes.h"

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::storage {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr uint64_t kCapacity = 64 * kGiB;

base::TimePoint At(base::Duration time) { return base::TimePoint{} + time; }

TEST(DriveWrites, AreNotKnownBeforeSomeTimeHasPassed) {
  DriveWrites writes;
  EXPECT_EQ(writes.PerDay(kCapacity), 0);
  writes.Note(0, At(seconds(1)));
  writes.Note(kCapacity, At(minutes(9)));
  EXPECT_EQ(writes.PerDay(kCapacity), 0) << "a checkpoint of nine minutes tells nothing of a day";
  writes.Note(kCapacity, At(seconds(1) + minutes(10)));
  EXPECT_NEAR(writes.PerDay(kCapacity), 144, 0.001);
}

TEST(DriveWrites, CountFromTheFirstLookOn) {
  DriveWrites writes;
  writes.Note(5 * kCapacity, At(hours(1)));
  writes.Note(6 * kCapacity, At(hours(13)));
  EXPECT_NEAR(writes.PerDay(kCapacity), 2, 0.001);
}

TEST(DriveWrites, AreOfTheLastDay) {
  DriveWrites writes;
  uint64_t written = 0;
  base::TimePoint now;
  const auto pass = [&](base::Duration time, uint64_t each) {
    for (base::Duration passed{0}; passed < time; passed += minutes(1)) {
      now = now + minutes(1);
      writes.Note(written += each, now);
    }
    writes.CheckInvariants();
  };
  constexpr uint64_t kMinutes = 24 * 60;
  pass(hours(48), 4 * kCapacity / kMinutes);
  EXPECT_NEAR(writes.PerDay(kCapacity), 4, 0.01);
  pass(hours(12), 0);
  EXPECT_NEAR(writes.PerDay(kCapacity), 2, 0.02);
  pass(hours(13), 0);
  EXPECT_EQ(writes.PerDay(kCapacity), 0);
}

TEST(DriveWrites, AreRightAfterALongSilence) {
  DriveWrites writes;
  writes.Note(0, At(hours(0)));
  writes.Note(kCapacity, At(hours(100)));
  writes.CheckInvariants();
  EXPECT_NEAR(writes.PerDay(kCapacity), 0.24, 0.001) << "when it was written in these 100 hours is not known";
}

TEST(DriveWritesDeathTest, ACounterDoesNotFall) {
  DriveWrites writes;
  writes.Note(2, At(seconds(1)));
  EXPECT_DEATH(writes.Note(1, At(seconds(2))), "1 bytes after 2");
}

}  // namespace
}  // namespace tier::storage
