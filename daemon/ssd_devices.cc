// See ssd_devices.h.
#include "daemon/ssd_devices.h"

#include <chrono>
#include <string>

#include "daemon/base/detached_calls.h"
#include "daemon/storage/file_system.h"

namespace tier {
namespace {

constexpr auto kLookWait = std::chrono::seconds(1);

}  // namespace

std::vector<storage::SsdDeviceOptions> SsdDevicesOf(const config::Config& config, const DaemonPaths& paths) {
  std::vector<storage::SsdDeviceOptions> devices;
  if (config.ssd.devices == std::vector<std::string>{"none"}) return devices;
  for (const std::string& path : config.ssd.devices) {
    devices.push_back({.path = path, .size = config.ssd.file_size, .private_file = false});
  }
  if (!devices.empty()) return devices;
  const bool unnamed = !paths.persistent;
  // A size that was set is refused where it does not fit; a daemon that was told none serves with what there is. One
  // that keeps tensors across restarts does without its file only for lack of room: other failures may hide a file that
  // holds tensors.
  const storage::Need by_default = unnamed ? storage::Need::kIfPossible : storage::Need::kIfRoom;
  devices.push_back({.path = unnamed ? paths.data_directory : paths.data_directory + "/tier.ssd",
                     .size = config.ssd.file_size,
                     .private_file = unnamed,
                     .need = config.ssd.file_size == 0 ? by_default : storage::Need::kRequired});
  return devices;
}

Status CheckDistinctDevices(const config::Config& config) {
  base::DetachedCalls<Status> look;
  const auto compare = [paths = config.ssd.devices] { return storage::CheckDistinct(paths); };
  if (Status started = look.Start(0, "tierd-look", compare); !started) return {};
  look.WaitAtMost(kLookWait);
  return look.Take(0).value_or(Status());
}

}  // namespace tier
