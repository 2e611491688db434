// SmartWatch: reads, now and then, what tierd-smart wrote of the health of the devices, and keeps the last whole
// report.
//
// The main thread, which may wait for a file; Of: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/session/control_api.h"
#include "daemon/storage/smart_file.h"
#include "proto/mutex.h"

namespace tier {

inline constexpr int kSmartReadTicks = 30;  // Of the main thread, a second each, between two looks at the file.

class SmartWatch {
 public:
  explicit SmartWatch(std::string path) : path_(std::move(path)) {}

  // Another file from the next tick on; what the one before it said is dropped. The same path changes nothing.
  void SetPath(const std::string& path);
  // Each tick. A sentence, where the file cannot be used, for another reason than the last time. A file that is not
  // there is none of these: tierd-smart is optional. What was read before stays then, and becomes stale. A file that
  // can be used says all: a device that it leaves out is not configured any more, or not there.
  std::optional<std::string> Tick();
  // The worst of what stands behind that path, as old as the oldest of it. None: nothing is known of it. `now`: seconds
  // of the Unix epoch.
  std::optional<session::DeviceSmart> Of(const std::string& device, int64_t now) const;

 private:
  std::string path_;  // Empty: none.
  int ticks_ = 0;
  std::string told_;
  mutable Mutex mutex_;
  storage::SmartReport report_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier
