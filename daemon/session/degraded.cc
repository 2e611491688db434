#include "daemon/session/degraded.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/missing_device.h"

namespace tier::session {
namespace {

void AddDevice(const Condition::Device& device, std::vector<Degradation>* causes) {
  const auto add = [&](std::string what) {
    causes->push_back({DegradedCause::kDevice, fmt::format("device {} {}", device.index, std::move(what))});
  };
  TIER_CHECK(device.now != nullptr, "device {} is not looked at", device.index);
  const tiering::DeviceView& now = *device.now;
  TIER_CHECK(now.space.quarantined <= now.space.capacity || now.space.capacity == 0, "{} of {} bytes are quarantined",
             now.space.quarantined, now.space.capacity);
  if (now.state != storage::DeviceState::kOnline) add(fmt::format("{}: {}", DeviceStateName(now.state), now.reason));
  if (now.traffic.errors > 0) add(fmt::format("errors: {}", now.traffic.errors));
  if (now.traffic.corrupt > 0) add(fmt::format("corrupt pieces: {}", now.traffic.corrupt));
  if (now.space.quarantined > 0) add(fmt::format("quarantined: {}", base::FormatBytes(now.space.quarantined)));
}

void AddMissing(const tiering::MissingDeviceView& device, std::vector<Degradation>* causes) {
  const storage::MissingDevice named{.uuid = device.uuid, .path = device.path, .reason = device.reason};
  const std::string lost = device.uuid.empty()
                               ? std::string()
                               : fmt::format("; jobs lost: {} (tierctl job list --lost)", device.lost_job_count);
  causes->push_back(
      {DegradedCause::kMissingDevice, fmt::format("device {} is missing: {}{}", named.Name(), device.reason, lost)});
}

}  // namespace

Condition ConditionOf(const DaemonDescription& modes, const tiering::EngineSnapshot& engine) {
  return {.ssd_mode = modes.ssd_mode,
          .ssd_mode_reason = modes.ssd_mode_reason,
          .memory_mode = modes.memory_mode,
          .memory_mode_reason = modes.memory_mode_reason,
          .torn_count = engine.torn_count,
          .missing = engine.missing,
          .devices = {}};
}

std::vector<Degradation> DegradedBy(const Condition& condition) {
  std::vector<Degradation> causes;
  if (condition.ssd_mode == "none" && !condition.ssd_mode_reason.empty()) {
    causes.push_back(
        {DegradedCause::kSsdTier, fmt::format("no SSD tier, tensors stay in RAM: {}", condition.ssd_mode_reason)});
  }
  // Without an SSD tier no memory is to be locked.
  if (condition.memory_mode == "unpinned" && condition.ssd_mode != "none") {
    causes.push_back({DegradedCause::kMemory, fmt::format("memory is not pinned: {}", condition.memory_mode_reason)});
  }
  if (condition.torn_count > 0) {
    causes.push_back({DegradedCause::kTornTensors, fmt::format("torn tensors: {}", condition.torn_count)});
  }
  for (const Condition::Device& device : condition.devices) AddDevice(device, &causes);
  for (const tiering::MissingDeviceView& device : condition.missing) AddMissing(device, &causes);
  return causes;
}

std::vector<Degradation> DegradedBy(const DaemonDescription& daemon) {
  Condition condition = ConditionOf(daemon, daemon.engine);
  for (const DeviceDescription& device : daemon.devices)
    condition.devices.push_back({.index = device.index, .now = &device.now});
  return DegradedBy(condition);
}

bool NoDeviceTakesTensors(std::span<const tiering::DeviceView> devices) {
  return std::ranges::any_of(devices, &tiering::DeviceView::draining) &&
         std::ranges::all_of(devices, [](const tiering::DeviceView& device) {
           return device.draining || storage::IsAway(device.state);
         });
}

}  // namespace tier::session
