#include "daemon/storage/manifest_store.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::storage {

void ManifestStore::RemoveMissing(const std::string& uuid) {
  TIER_CHECK(!uuid.empty(), "a purge of nothing");
  const auto device = std::ranges::find(missing_, uuid, &MissingDevice::uuid);
  if (device == missing_.end()) return;
  if (!device->is_configured) {
    missing_.erase(device);
    return;
  }
  device->uuid.clear();  // Its path is still without a device.
  device->number = DeviceNumbers::kNone;
}

}  // namespace tier::storage
