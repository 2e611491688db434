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
  if (device.recent_faults.errors > 0) add(fmt::format("errors: {}", device.recent_faults.errors));
  if (device.recent_faults.corrupt > 0) add(fmt::format("corrupt pieces: {}", device.recent_faults.corrupt));
  if (now.space.quarantined > 0) add(fmt::format("quarantined: {}", base::FormatBytes(now.space.quarantined)));
}

// Where none is drained no command led to it: the causes of the devices themselves say what did.
bool NoDeviceTakesTensors(std::span<const Condition::Device> devices) {
  return std::ranges::any_of(devices, [](const Condition::Device& device) { return device.now->draining; }) &&
         std::ranges::all_of(devices, [](const Condition::Device& device) {
           return device.now->draining || storage::IsAway(device.now->state);
         });
}

void AddSsd(const Condition& condition, std::vector<Degradation>* causes) {
  const auto add = [&](DegradedCause cause, std::string text) { causes->push_back({cause, std::move(text)}); };
  const std::string_view reason = condition.ssd_mode_reason;
  if (condition.ssd_mode == "none" && !reason.empty())
    add(DegradedCause::kSsdTier, fmt::format("no SSD tier, tensors stay in RAM: {}", reason));
  if (condition.ssd_mode == "reduced")
    add(DegradedCause::kSsdSize, fmt::format("less SSD space than configured: {}", reason));
  if (NoDeviceTakesTensors(condition.devices)) {
    add(DegradedCause::kSsdDrained,
        "no SSD device takes new tensors: they stay in RAM, and are refused where it has no room, until a device is "
        "used again (tierctl device drain N --undo)");
  }
  if (!condition.index_failure.empty()) add(DegradedCause::kIndex, std::string(condition.index_failure));
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
          .index_failure = engine.index_failure,
          .torn_count = engine.torn_count,
          .missing = engine.missing,
          .devices = {}};
}

std::vector<Degradation> DegradedBy(const Condition& condition) {
  std::vector<Degradation> causes;
  AddSsd(condition, &causes);
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
    condition.devices.push_back({.index = device.index, .now = &device.now, .recent_faults = device.recent_faults});
  return DegradedBy(condition);
}

}  // namespace tier::session
