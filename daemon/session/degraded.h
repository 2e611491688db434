// What makes a daemon do less than it was set up for: the one list of causes for `tierctl status`, for the log, for
// systemd and for metrics. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/session/control_api.h"

namespace tier::session {

enum class DegradedCause : uint8_t {
  kSsdTier,        // There is none, though it was not configured away.
  kSsdSize,        // A file is smaller than configured, or than the default one.
  kSsdDrained,     // Some device is drained, and no other takes new tensors: each is drained too, or does not answer.
  kIndex,          // Nothing can be persisted any more, or resumed either.
  kMemory,         // It may not be locked.
  kTornTensors,    // Some answer TORN.
  kDevice,         // One is not online, has quarantined places, or had failed transfers or pieces lately.
  kMissingDevice,  // The start did without one that is configured, or that jobs persisted on.
};
inline constexpr size_t kDegradedCauses = 8;
constexpr const char* DegradedCauseName(DegradedCause cause) {
  constexpr std::array<const char*, kDegradedCauses> kNames = {
      "ssd_tier", "ssd_size", "ssd_drained", "index", "memory", "torn_tensors", "device", "missing_device"};
  return kNames[static_cast<size_t>(cause)];
}

struct Degradation {
  DegradedCause cause{};
  std::string text;  // In a few words.
};

// What is looked at. It refers to what it was made of.
struct Condition {
  struct Device {
    uint16_t index = 0;
    const tiering::DeviceView* now = nullptr;
    RecentFaults recent_faults{};
  };
  std::string_view ssd_mode;  // As in DaemonDescription, as the next three.
  std::string_view ssd_mode_reason;
  std::string_view memory_mode;
  std::string_view memory_mode_reason;
  std::string_view index_failure;
  uint64_t torn_count = 0;
  std::span<const tiering::MissingDeviceView> missing;
  std::vector<Device> devices;
};
// Of a daemon with these modes and this engine. The caller adds the devices.
Condition ConditionOf(const DaemonDescription& modes, const tiering::EngineSnapshot& engine);

// Empty: it is not degraded. A node that is being drained is not: no job comes that could miss something. One whose
// devices are all drained is, for jobs come, and are refused what they were to have.
std::vector<Degradation> DegradedBy(const Condition& condition);
std::vector<Degradation> DegradedBy(const DaemonDescription& daemon);

}  // namespace tier::session
