// See memory_stalls.h.
#include "daemon/memory/memory_stalls.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "daemon/memory/kernel_text.h"

namespace tier::memory {
namespace {

// The line that starts with `kind`; empty: there is none.
std::string_view LineOf(std::string_view text, std::string_view kind) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end == std::string_view::npos ? end : end - at);
    if (line.starts_with(kind)) return line;
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return {};
}

// What stands behind "avg10=" in the line.
std::string_view Behind(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + key.size());
}

std::optional<double> Percent(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

}  // namespace

MemoryStalls ParseStalls(std::string_view text) {
  const std::string_view some = LineOf(text, "some ");
  const std::string_view full = LineOf(text, "full ");
  const auto some_avg10 = Percent(Behind(some, " avg10="));
  const auto full_avg10 = Percent(Behind(full, " avg10="));
  if (!some_avg10 || !full_avg10) return {};
  return {.some_avg10 = *some_avg10,
          .full_avg10 = *full_avg10,
          .some_total_us = ParseNumber(Behind(some, " total=")),
          .full_total_us = ParseNumber(Behind(full, " total=")),
          .known = true};
}

}  // namespace tier::memory
