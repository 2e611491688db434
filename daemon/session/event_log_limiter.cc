#include "daemon/session/event_log_limiter.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace tier::session {

std::optional<EventLogLimiter::Line> EventLogLimiter::Pass(const Event& event, base::TimePoint now) {
  constexpr std::array<std::string_view, 7> kFaults = {"io_error",      "corrupt",       "torn",    "unpinned",
                                                       "forced_return", "window_failed", "degraded"};
  if (event.kind.starts_with("config_reload")) return std::nullopt;  // The reload itself logs it, in the right order.
  std::string text = event.kind + ": " + event.message;
  if (std::ranges::find(kFaults, event.kind) != kFaults.end()) return Line{.fault = true, .text = std::move(text)};
  auto passed = event.kind == "pressure" ? pressure_limit_.Pass(text, now) : limit_.Pass(text, now);
  if (!passed) return std::nullopt;
  return Line{.fault = event.kind == "session_revoked", .text = std::move(*passed)};
}

}  // namespace tier::session
