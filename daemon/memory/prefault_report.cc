#include "daemon/memory/prefault_report.h"

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::memory {

using base::FormatBytes;

std::optional<std::string> PrefaultReport::Note(uint64_t done_bytes, uint64_t target_bytes) {
  const bool first = asked_bytes_ == 0;
  if (ended_ || (first && target_bytes == 0)) return std::nullopt;
  if (first) asked_bytes_ = target_bytes;
  if (done_bytes >= target_bytes) {
    ended_ = true;
    if (target_bytes >= asked_bytes_) return fmt::format("prefault is complete: {}", FormatBytes(done_bytes));
    return fmt::format(
        "prefault has ended with {} of {}: the host did not give the rest, or it went to smaller windows; it is asked "
        "for again when it is needed",
        FormatBytes(done_bytes), FormatBytes(asked_bytes_));
  }
  const uint64_t tenths = done_bytes / (target_bytes / 10 + 1);
  if (!first && tenths <= tenths_told_) return std::nullopt;
  tenths_told_ = tenths;
  const double percent = 100.0 * static_cast<double>(done_bytes) / static_cast<double>(target_bytes);
  return fmt::format("prefault: {} of {} ({:.0f} %)", FormatBytes(done_bytes), FormatBytes(target_bytes), percent);
}

}  // namespace tier::memory
