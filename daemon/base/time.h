// The engine's notion of time: always passed in, never asked for.
#pragma once

#include <chrono>

namespace tier::base {

using Duration = std::chrono::nanoseconds;
// Nanoseconds of CLOCK_MONOTONIC in the daemon, of the scripted clock in tests.
struct TimePoint {
  Duration since_start{0};
  friend auto operator<=>(const TimePoint&, const TimePoint&) = default;
  friend TimePoint operator+(TimePoint t, Duration d) { return {t.since_start + d}; }
  friend Duration operator-(TimePoint a, TimePoint b) { return a.since_start - b.since_start; }
};

}  // namespace tier::base
