// ManualClock: time that passes when the test says so. Not synchronised: set it where it is read.
#pragma once

#include "daemon/base/clock.h"

namespace tier::session::testing {

class ManualClock final : public base::Clock {
 public:
  base::TimePoint Now() const override { return now; }
  base::TimePoint now{std::chrono::seconds(100)};
};

}  // namespace tier::session::testing
