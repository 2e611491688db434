#include "daemon/session/warning_limit.h"

#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

std::optional<std::string> WarningLimit::Pass(const std::string& text, base::TimePoint now) {
  if (!period_began_ || now - *period_began_ >= period_) {
    period_began_ = now;
    passed_ = 0;
  }
  TIER_CHECK(passed_ <= lines_max_, "{} lines in a period", passed_);
  if (passed_ == lines_max_) {
    ++left_out_;
    return std::nullopt;
  }
  ++passed_;
  const uint64_t left_out = std::exchange(left_out_, 0);
  return left_out == 0 ? text : fmt::format("{} ({} lines before this one were left out)", text, left_out);
}

}  // namespace tier::session
