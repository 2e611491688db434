#include "daemon/memory/pressure_report.h"

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::memory {
namespace {

using std::chrono::seconds;

TEST(PressureReport, TellsTheBeginAndTheEndOfAShortageAndNothingBetween) {
  HostReading reading;
  reading.memory_total = 64 * kGiB;
  HostPressure pressure;
  PressureReport report;
  base::TimePoint now{seconds(5)};
  const auto note = [&](uint64_t arena, uint64_t missing, uint64_t given_back) {
    now = now + seconds(1);
    pressure.Note(reading, {.bytes = arena, .missing_bytes = missing}, now);
    return report.Note(pressure, {.arena_bytes = arena, .given_back_bytes = given_back}, "little is left", now);
  };
  EXPECT_FALSE(note(kGiB, 0, 7 * kMiB));
  EXPECT_EQ(note(kGiB, 24 * kMiB, 7 * kMiB),
            "the host is short of memory: little is left; the arena of 1 GiB begins to give 24 MiB back");
  EXPECT_FALSE(note(1000 * kMiB, 0, 31 * kMiB));
  EXPECT_FALSE(note(1000 * kMiB, 8 * kMiB, 31 * kMiB));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(note(992 * kMiB, 0, 39 * kMiB));
  EXPECT_EQ(note(992 * kMiB, 0, 39 * kMiB),
            "the host is not short of memory any more, after 12.0 s: 32 MiB were given back, the arena has 992 MiB");
  EXPECT_FALSE(note(992 * kMiB, 0, 39 * kMiB));
}

TEST(PressureReport, AShortageThatLowersNothingIsNotTold) {
  HostReading reading;
  reading.memory_total = 64 * kGiB;
  reading.stalls = {.some_avg10 = 90, .known = true};
  HostPressure pressure;
  PressureReport report;
  pressure.Note(reading, {.bytes = kGiB}, base::TimePoint(seconds(5)));
  EXPECT_TRUE(pressure.active());
  EXPECT_FALSE(report.Note(pressure, {}, "", base::TimePoint(seconds(5))));
}

}  // namespace
}  // namespace tier::memory
