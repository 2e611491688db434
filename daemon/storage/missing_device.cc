#include "daemon/storage/missing_device.h"

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::storage {

std::string MissingDevice::Name() const {
  TIER_CHECK(!uuid.empty() || !path.empty(), "a missing device without uuid and path ({})", reason);
  if (uuid.empty()) return path;
  return path.empty() ? uuid : fmt::format("{} (last at {})", uuid, path);
}

std::string MissingText(const MissingDevice& device) {
  if (device.uuid.empty()) {
    return fmt::format(
        "device {} is missing, and nothing persisted lies on it: {}; tierd does without it until it is "
        "back at a restart, or out of ssd.devices",
        device.Name(), device.reason);
  }
  return fmt::format(
      "device {} is missing: {}; jobs that persisted tensors on it are lost (tierctl job list --lost) "
      "until it is back at a restart; to give them up, type: tierctl device purge {}",
      device.Name(), device.reason, device.uuid);
}

}  // namespace tier::storage
