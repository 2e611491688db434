// EventLogLimiter: which events go into the daemon's own log, and how loudly. Those that a client causes by connecting,
// opening and closing in a loop must not fill it: so many lines a period, and the first one after it says how many were
// left out. Faults of the machine, each device among them, are always told. That a session was ended by force is a
// warning, and counted as what clients cause: one that breaks the protocol in a loop does. Watchers see every event
// (event_log).
//
// One thread at a time.
#pragma once

#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/session/control_api.h"
#include "daemon/session/warning_limit.h"

namespace tier::session {

inline constexpr uint32_t kEventLinesPerPeriodMax = 200;  // Every rank of a large node comes or goes at once.
// Requests begin to wait every few seconds for as long as a node swaps, which is no news: a line in so long a time.
inline constexpr base::Duration kPressurePeriod = std::chrono::minutes(1);

class EventLogLimiter {
 public:
  struct Line {
    bool fault = false;  // A warning; else for information.
    std::string text;
  };
  // The line to log now; nothing: it is counted only.
  std::optional<Line> Pass(const Event& event, base::TimePoint now);

 private:
  WarningLimit limit_{kEventLinesPerPeriodMax};
  WarningLimit pressure_limit_{1, kPressurePeriod};
};

}  // namespace tier::session
