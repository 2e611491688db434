// See pressure_report.h.
#include "daemon/memory/pressure_report.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::memory {

using base::FormatBytes;

std::optional<std::string> PressureReport::Note(const HostPressure& pressure, const PressureFigures& figures,
                                                const std::string& why, base::TimePoint now) {
  const bool gives = pressure.active() && pressure.gives();
  // One that has ended and begun again since the last call is told on: its end comes with all that was given.
  if (gives == told_) {
    if (!gives) given_before_ = figures.given_back_bytes;
    return std::nullopt;
  }
  told_ = gives;
  TIER_CHECK(figures.given_back_bytes >= given_before_, "{} of {} bytes given back", figures.given_back_bytes,
             given_before_);
  if (gives) {
    since_ = pressure.since();
    const uint64_t before = pressure.bytes_before();
    return fmt::format("the host is short of memory: {}; the arena of {} begins to give {} back", why,
                       FormatBytes(before), FormatBytes(before - std::min(before, pressure.ceiling())));
  }
  return fmt::format("the host is not short of memory any more, after {:.1f} s: {} were given back, the arena has {}",
                     std::chrono::duration<double>(now - since_).count(),
                     FormatBytes(figures.given_back_bytes - given_before_), FormatBytes(figures.arena_bytes));
}

}  // namespace tier::memory
