// WarningLimit: how much is logged about what clients do. One that is refused in a loop must not fill the log: so
// many lines a period, and the first one after it says how many were left out.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/time.h"

namespace tier::session {

inline constexpr uint32_t kWarningsPerPeriodMax = 20;
inline constexpr base::Duration kWarningPeriod = std::chrono::seconds(10);

class WarningLimit {
 public:
  explicit WarningLimit(uint32_t lines_max = kWarningsPerPeriodMax, base::Duration period = kWarningPeriod)
      : lines_max_(lines_max), period_(period) {}
  // The line to log now; nothing: it is counted only.
  std::optional<std::string> Pass(const std::string& text, base::TimePoint now);
  uint64_t left_out() const { return left_out_; }  // Since the last line.

 private:
  std::optional<base::TimePoint> period_began_;
  const uint32_t lines_max_;
  const base::Duration period_;
  uint32_t passed_ = 0;  // In this period; <= lines_max_.
  uint64_t left_out_ = 0;
};

}  // namespace tier::session
