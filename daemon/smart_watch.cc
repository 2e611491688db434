#include "daemon/smart_watch.h"

#include <algorithm>
#include <utility>

namespace tier {

std::optional<std::string> SmartWatch::Tick() {
  if (path_.empty() || ticks_++ % kSmartReadTicks != 0) return std::nullopt;
  auto report = storage::ReadSmartFile(path_);
  if (report) {
    told_.clear();
    const MutexLock lock(mutex_);
    report_ = std::move(*report);
    return std::nullopt;
  }
  if (report.error().code == Code::kNotFound || report.error().message == told_) return std::nullopt;
  told_ = report.error().message;
  return "the health of the devices is not known: " + told_;
}

std::optional<session::DeviceSmart> SmartWatch::Of(const std::string& device, int64_t now) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(report_.devices, device, &storage::SmartDevice::path);
  if (found == report_.devices.end()) return std::nullopt;
  return session::DeviceSmart{
      .figures = found->figures, .read_time = report_.time, .stale = storage::IsStale(report_, now)};
}

}  // namespace tier
