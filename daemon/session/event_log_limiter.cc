#include "daemon/session/event_log_limiter.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace tier::session {
namespace {

// What a device does by itself has the kind "device", and what an administrator has it do kinds of its own: "drain",
// "retry", "device_purged". So all of that kind are faults, but its end.
bool IsFault(const Event& event) {
  constexpr std::array<std::string_view, 8> kFaults = {"io_error",      "corrupt",       "torn",     "unpinned",
                                                       "forced_return", "window_failed", "degraded", "device"};
  if (event.kind == "device" && event.message.ends_with("is online again")) return false;
  return std::ranges::find(kFaults, event.kind) != kFaults.end();
}

}  // namespace

std::optional<EventLogLimiter::Line> EventLogLimiter::Pass(const Event& event, base::TimePoint now) {
  if (event.kind.starts_with("config_reload")) return std::nullopt;  // The reload itself logs it, in the right order.
  std::string text = event.kind + ": " + event.message;
  if (IsFault(event)) return Line{.fault = true, .text = std::move(text)};
  auto passed = event.kind == "pressure" ? pressure_limit_.Pass(text, now) : limit_.Pass(text, now);
  if (!passed) return std::nullopt;
  return Line{.fault = event.kind == "session_revoked", .text = std::move(*passed)};
}

}  // namespace tier::session
