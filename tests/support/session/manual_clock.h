// Time that passes when the test says so.
#pragma once

#include <atomic>

#include "daemon/base/clock.h"

namespace tier::session::testing {

// Not synchronised: set it where it is read.
class ManualClock final : public base::Clock {
 public:
  base::TimePoint Now() const override { return now; }
  base::TimePoint now{std::chrono::seconds(100)};
};

// Any thread.
class SharedClock final : public base::Clock {
 public:
  base::TimePoint Now() const override { return {base::Duration(now_.load())}; }
  void Advance(base::Duration time) { now_ += time.count(); }

 private:
  std::atomic<base::Duration::rep> now_{base::Duration(std::chrono::seconds(100)).count()};
};

}  // namespace tier::session::testing
