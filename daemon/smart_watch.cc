#include "daemon/smart_watch.h"

#include <utility>

namespace tier {

void SmartWatch::SetPath(const std::string& path) {
  if (path == path_) return;
  path_ = path;
  ticks_ = 0;
  told_.clear();
  const MutexLock lock(mutex_);
  report_ = {};
}

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
  const auto health = storage::HealthOf(report_, device);
  if (!health) return std::nullopt;
  return session::DeviceSmart{
      .figures = health->figures, .read_time = health->time, .stale = storage::IsStale(health->time, now)};
}

}  // namespace tier
