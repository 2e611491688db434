#include "daemon/config/quantity.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "proto/units.h"

namespace tier::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr auto kSizeUnits = std::to_array<Unit>({{"", 1},
                                                 {"B", 1},
                                                 {"KiB", 1024.0},
                                                 {"MiB", 1024.0 * 1024},
                                                 {"GiB", 1024.0 * 1024 * 1024},
                                                 {"TiB", 1024.0 * 1024 * 1024 * 1024},
                                                 {"kB", 1e3},
                                                 {"MB", 1e6},
                                                 {"GB", 1e9},
                                                 {"TB", 1e12}});
constexpr auto kTimeUnits =
    std::to_array<Unit>({{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}});
constexpr double kLargest = 9.2e18;  // Below 2^63: every result fits.

// A number without sign or exponent, then what follows it, without blanks between.
Result<std::pair<double, std::string_view>> SplitNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || text.front() == '-' || !(value <= kLargest)) {
    return Fail(Code::kInvalid, fmt::format("'{}' is not a quantity", text));
  }
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return std::pair(value, rest);
}

template <size_t N>
Result<uint64_t> ParseWithUnit(std::string_view text, const std::array<Unit, N>& units, std::string_view example) {
  const auto number = SplitNumber(text);
  if (!number) return Fail(Code::kInvalid, fmt::format("{}; write it like \"{}\"", number.error().message, example));
  const auto [value, name] = *number;
  std::string known;
  for (const Unit& unit : units) {
    if (!unit.name.empty()) known += fmt::format("{}{}", known.empty() ? "" : ", ", unit.name);
    // A fraction of a byte is a unit that was forgotten.
    if (unit.name != name || (name.empty() && value != std::floor(value))) continue;
    const double scaled = value * unit.factor;
    if (scaled > kLargest) return Fail(Code::kInvalid, fmt::format("'{}' is too large", text));
    return static_cast<uint64_t>(std::llround(scaled));
  }
  if (name.empty()) return Fail(Code::kInvalid, fmt::format("'{}' has no unit; write it like \"{}\"", text, example));
  return Fail(Code::kInvalid, fmt::format("'{}' has the unit '{}'; known are {}", text, name, known));
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) { return ParseWithUnit(text, kSizeUnits, "64GiB"); }

Result<base::Duration> ParseDuration(std::string_view text) {
  const auto nanoseconds = ParseWithUnit(text, kTimeUnits, "250ms");
  if (!nanoseconds) return std::unexpected(nanoseconds.error());
  return base::Duration(static_cast<int64_t>(*nanoseconds));
}

std::string FormatDuration(base::Duration duration) {
  constexpr auto kUnits = std::to_array<std::pair<std::string_view, int64_t>>(
      {{"h", 3'600'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}});
  const int64_t nanoseconds = duration.count();
  if (nanoseconds == 0) return "0s";
  for (const auto& [name, factor] : kUnits) {
    if (nanoseconds % factor == 0) return fmt::format("{}{}", nanoseconds / factor, name);
  }
  return fmt::format("{}ns", nanoseconds);
}

Result<double> ParseShare(std::string_view text) {
  const auto number = SplitNumber(text);
  if (!number || number->second != "%" || number->first > 100) {
    return Fail(Code::kInvalid, fmt::format("'{}' is not a share of 0% to 100%; write it like \"25%\"", text));
  }
  return number->first / 100;
}

}  // namespace tier::config
