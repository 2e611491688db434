#include "daemon/smart_watch.h"

#include <algorithm>
#include <utility>

namespace tier {

std::optional<std::string> SmartWatch::Tick() {
  if (path_.empty() || ticks_++ % kSmartReadTicks != 0) return std::nullopt;
  auto report = storage::ReadSmartFile(path_);
  if (report) {
    told_.clear();
    Take(std::move(*report));
    return std::nullopt;
  }
  if (report.error().code == Code::kNotFound || report.error().message == told_) return std::nullopt;
  told_ = report.error().message;
  return "the health of the devices is not known: " + told_;
}

void SmartWatch::Take(storage::SmartReport report) {
  const MutexLock lock(mutex_);
  const auto is_left_out = [&](const storage::SmartDevice& device) {
    return std::ranges::find(report.devices, device.path, &storage::SmartDevice::path) == report.devices.end();
  };
  for (const storage::SmartDevice& device : report_.devices) {
    const bool room = report.devices.size() < storage::kSmartDevicesMax;
    if (room && is_left_out(device)) report.devices.push_back(device);
  }
  report_ = std::move(report);
}

std::optional<session::DeviceSmart> SmartWatch::Of(const std::string& device, int64_t now) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(report_.devices, device, &storage::SmartDevice::path);
  if (found == report_.devices.end()) return std::nullopt;
  return session::DeviceSmart{
      .figures = found->figures, .read_time = found->time, .stale = storage::IsStale(found->time, now)};
}

}  // namespace tier
