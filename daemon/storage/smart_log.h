// SmartLog: the SMART / Health Information log page of an NVMe device (NVM Express Base Specification, log page 0x02:
// 512 bytes, little endian). Pure; a function of its argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/result.h"

namespace tier::storage {

inline constexpr size_t kSmartLogBytes = 512;
inline constexpr uint8_t kSmartLogPage = 0x02;
inline constexpr uint16_t kSmartKelvinMin = 173;  // -100 °C …
inline constexpr uint16_t kSmartKelvinMax = 473;  // … to 200 °C: beyond these no temperature is meant.
inline constexpr int kKelvinOfZeroCelsius = 273;

// Bits of the page's first byte, in their order.
enum class SmartWarning : uint8_t { kSpare, kTemperature, kReliability, kReadOnly, kBackup, kMemoryRegion };
inline constexpr size_t kSmartWarnings = 6;
constexpr const char* SmartWarningName(SmartWarning warning) {
  constexpr std::array<const char*, kSmartWarnings> kNames = {"spare",     "temperature", "reliability",
                                                              "read_only", "backup",      "memory_region"};
  return kNames[static_cast<size_t>(warning)];
}
inline constexpr uint8_t kSmartWarningBits = (1u << kSmartWarnings) - 1;

struct SmartFigures {
  uint8_t warnings = 0;             // Bits by SmartWarning; no others.
  uint16_t temperature_kelvin = 0;  // 0: the device does not tell, or tells one that cannot be.
  uint8_t available_spare = 0;      // Percent of the spare blocks that it had, 0 … 100.
  uint8_t spare_threshold = 0;      // Percent, at which it warns.
  uint8_t percentage_used = 0;      // Of its endurance; 255: that or more.
  uint64_t written_bytes = 0;       // By all hosts in its life. The largest number: that or more, as the next.
  uint64_t media_errors = 0;        // Bytes that it could not give back as they were written, counted by commands.

  bool warns(SmartWarning warning) const { return (warnings >> static_cast<unsigned>(warning) & 1u) != 0; }
  friend bool operator==(const SmartFigures&, const SmartFigures&) = default;
};

// No byte that the page could hold makes these differ: within the ranges above.
bool IsSane(const SmartFigures& figures);
// CORRUPT: it is not so long, empty, or holds what no device can mean.
Result<SmartFigures> ParseSmartLog(std::span<const std::byte> page);
// Of two devices behind one path, as of a RAID: the worse of each figure, and the sums of what is counted.
SmartFigures WorseOf(const SmartFigures& a, const SmartFigures& b);

}  // namespace tier::storage
