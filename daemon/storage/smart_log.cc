#include "daemon/storage/smart_log.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::storage {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kDataUnitBytes = 512'000;  // Thousands of 512 bytes.

// Places in the page.
constexpr size_t kWarningsAt = 0;
constexpr size_t kTemperatureAt = 1;
constexpr size_t kSpareAt = 3;
constexpr size_t kThresholdAt = 4;
constexpr size_t kUsedAt = 5;
constexpr size_t kUnitsWrittenAt = 48;
constexpr size_t kMediaErrorsAt = 160;
constexpr size_t kCounterBytes = 16;

std::unexpected<Error> Corrupt(std::string what) {
  return Fail(Code::kCorrupt, "this is no SMART log page of an NVMe device: " + std::move(what));
}

uint64_t Number(std::span<const std::byte> page, size_t at, size_t bytes) {
  TIER_CHECK(at + bytes <= page.size() && bytes <= sizeof(uint64_t), "{} bytes at {} of {}", bytes, at, page.size());
  uint64_t number = 0;
  for (size_t i = bytes; i-- > 0;) number = number << 8 | static_cast<uint64_t>(page[at + i]);
  return number;
}

// Of 16 bytes; the largest number where it does not fit.
uint64_t Counter(std::span<const std::byte> page, size_t at) {
  const uint64_t high = Number(page, at + sizeof(uint64_t), kCounterBytes - sizeof(uint64_t));
  return high != 0 ? kMost : Number(page, at, sizeof(uint64_t));
}

uint64_t Times(uint64_t count, uint64_t size) { return count > kMost / size ? kMost : count * size; }
uint64_t Plus(uint64_t a, uint64_t b) { return a > kMost - b ? kMost : a + b; }

}  // namespace

bool IsSane(const SmartFigures& figures) {
  const uint16_t kelvin = figures.temperature_kelvin;
  return (figures.warnings & ~kSmartWarningBits) == 0 && figures.available_spare <= 100 &&
         figures.spare_threshold <= 100 && (kelvin == 0 || (kelvin >= kSmartKelvinMin && kelvin <= kSmartKelvinMax));
}

Result<SmartFigures> ParseSmartLog(std::span<const std::byte> page) {
  if (page.size() != kSmartLogBytes) return Corrupt(fmt::format("{} bytes, not {}", page.size(), kSmartLogBytes));
  if (std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte{0}; })) return Corrupt("it is empty");
  const auto percent = [&](size_t at) { return static_cast<uint8_t>(page[at]); };
  // A sensor that fails takes nothing else along.
  auto kelvin = static_cast<uint16_t>(Number(page, kTemperatureAt, sizeof(uint16_t)));
  if (kelvin < kSmartKelvinMin || kelvin > kSmartKelvinMax) kelvin = 0;
  // Bits of later versions of the standard are left out.
  const SmartFigures figures{
      .warnings = static_cast<uint8_t>(static_cast<uint8_t>(page[kWarningsAt]) & kSmartWarningBits),
      .temperature_kelvin = kelvin,
      .available_spare = percent(kSpareAt),
      .spare_threshold = percent(kThresholdAt),
      .percentage_used = percent(kUsedAt),
      .written_bytes = Times(Counter(page, kUnitsWrittenAt), kDataUnitBytes),
      .media_errors = Counter(page, kMediaErrorsAt)};
  if (IsSane(figures)) return figures;
  return Corrupt(
      fmt::format("{} % of its spare left, a threshold of {} %", figures.available_spare, figures.spare_threshold));
}

SmartFigures WorseOf(const SmartFigures& a, const SmartFigures& b) {
  TIER_CHECK(IsSane(a) && IsSane(b), "spares of {} and {} %", a.available_spare, b.available_spare);
  // The spare that is nearest to its threshold.
  const auto margin = [](const SmartFigures& each) { return each.available_spare - each.spare_threshold; };
  const SmartFigures& nearer = margin(a) <= margin(b) ? a : b;
  return {.warnings = static_cast<uint8_t>(a.warnings | b.warnings),
          .temperature_kelvin = std::max(a.temperature_kelvin, b.temperature_kelvin),
          .available_spare = nearer.available_spare,
          .spare_threshold = nearer.spare_threshold,
          .percentage_used = std::max(a.percentage_used, b.percentage_used),
          .written_bytes = Plus(a.written_bytes, b.written_bytes),
          .media_errors = Plus(a.media_errors, b.media_errors)};
}

}  // namespace tier::storage
