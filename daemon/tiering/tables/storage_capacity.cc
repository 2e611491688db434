// See storage_capacity.h.
#include "daemon/tiering/tables/storage_capacity.h"

#include <algorithm>

namespace tier::tiering {
namespace {

storage::DeviceSpace SpaceOf(const Tables& tables, uint16_t device) {
  const storage::ExtentStore& extents = tables.ports.extents;
  const bool comes_back = tables.devices[device].health.state() == storage::DeviceState::kOffline;
  return comes_back && extents.takes_extents(device) ? extents.space(device) : extents.usable(device);
}

}  // namespace

uint64_t StorageCapacity(const Tables& tables) {
  uint64_t bytes = 0;
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    const storage::DeviceSpace space = SpaceOf(tables, device);
    const uint64_t kept = space.quarantined + tables.manifests.unused().on(device) * kPageSize + kBlockSize;
    bytes += space.capacity - std::min(space.capacity, kept);
  }
  return bytes;
}

}  // namespace tier::tiering
