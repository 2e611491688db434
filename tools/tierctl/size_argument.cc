#include "tools/tierctl/size_argument.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "proto/units.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

// What was probably meant by a number without one: what gives a size that a node may have.
const char* UnitFor(uint64_t number) {
  if (number < 1024) return "GiB";
  return number < kMiB ? "MiB" : "KiB";
}

}  // namespace

std::optional<uint64_t> ParseBytes(const std::string& text) {
  constexpr std::pair<const char*, uint64_t> kUnits[] = {{"", 1},
                                                         {"B", 1},
                                                         {"KiB", 1ull << 10},
                                                         {"MiB", 1ull << 20},
                                                         {"GiB", 1ull << 30},
                                                         {"TiB", 1ull << 40},
                                                         {"kB", 1000},
                                                         {"KB", 1000},
                                                         {"MB", 1000ull * 1000},
                                                         {"GB", 1000ull * 1000 * 1000},
                                                         {"TB", 1000ull * 1000 * 1000 * 1000}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  if (unit.empty() && number != std::floor(number)) return std::nullopt;  // A fraction of a byte: the unit is missing.
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * static_cast<double>(factor);
    if (bytes >= 9.2e18) return std::nullopt;
    return static_cast<uint64_t>(std::llround(bytes));
  }
  return std::nullopt;
}

std::optional<std::string> MissingUnit(const std::string& option, const std::string& text) {
  const auto bytes = ParseBytes(text);
  const bool has_unit = text.find_first_not_of("0123456789. ") != std::string::npos;
  if (!bytes || has_unit || *bytes == 0 || *bytes >= kBlockSize) return std::nullopt;
  return fmt::format("{} {} is {} {}; write {}{}, or {}B if bytes are meant", option, text, *bytes,
                     *bytes == 1 ? "byte" : "bytes", *bytes, UnitFor(*bytes), *bytes);
}

Result<uint64_t> SizeArgument(const std::string& option, const std::string& text, const std::string& or_else) {
  const auto bytes = ParseBytes(text);
  if (!bytes) {
    return Fail(Code::kInvalid, fmt::format("{} \"{}\" is no size; write it like 512MiB or 16GiB, {}", option,
                                            Printable(text), or_else));
  }
  if (auto missing = MissingUnit(option, text)) return Fail(Code::kInvalid, std::move(*missing));
  return *bytes;
}

}  // namespace tier::tierctl
