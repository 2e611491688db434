#include "daemon/session/degraded.h"

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/missing_device.h"

namespace tier::session {
namespace {

void AddDevice(const DeviceDescription& device, std::vector<Degradation>* causes) {
  const auto add = [&](std::string what) {
    causes->push_back({DegradedCause::kDevice, fmt::format("device {} {}", device.index, std::move(what))});
  };
  const tiering::DeviceView& now = device.now;
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

std::vector<Degradation> DegradedBy(const DaemonDescription& daemon) {
  std::vector<Degradation> causes;
  if (daemon.ssd_mode == "none" && !daemon.ssd_mode_reason.empty()) {
    causes.push_back(
        {DegradedCause::kSsdTier, fmt::format("no SSD tier, tensors stay in RAM: {}", daemon.ssd_mode_reason)});
  }
  // Without an SSD tier no memory is to be locked.
  if (daemon.memory_mode == "unpinned" && daemon.ssd_mode != "none") {
    causes.push_back({DegradedCause::kMemory, fmt::format("memory is not pinned: {}", daemon.memory_mode_reason)});
  }
  if (daemon.engine.torn_count > 0) {
    causes.push_back({DegradedCause::kTornTensors, fmt::format("torn tensors: {}", daemon.engine.torn_count)});
  }
  for (const DeviceDescription& device : daemon.devices) AddDevice(device, &causes);
  for (const tiering::MissingDeviceView& device : daemon.engine.missing) AddMissing(device, &causes);
  return causes;
}

}  // namespace tier::session
