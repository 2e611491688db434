// Where the daemon's edge gets the time that it passes down; the engine itself never asks (daemon/base/time.h).
#pragma once

#include <chrono>

#include "daemon/base/time.h"

namespace tier::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;  // Never goes back.
};

// CLOCK_MONOTONIC. Thread-safe.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return {std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};

}  // namespace tier::base
