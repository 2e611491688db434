// DeviceFaults: which failed transfers and corrupt pieces of a device make the daemon degraded.
//
// The idea: the counters since the start never fall, so by them alone one error would be a cause until a restart. They
// are one for an hour behind the last of them, or until an administrator has the device retried. One object for each
// device.
//
// Engine thread.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/base/time.h"
#include "daemon/storage/transfer.h"

namespace tier::session {

inline constexpr base::Duration kFaultsRecentFor = std::chrono::hours(1);

struct RecentFaults {
  uint64_t errors = 0;
  uint64_t corrupt = 0;  // Pieces.
};

class DeviceFaults {
 public:
  // The counters as they are now.
  void Note(const storage::DeviceTraffic& traffic, base::TimePoint now);
  // None: the last one is older than kFaultsRecentFor. Else all since there were none.
  RecentFaults Recent(base::TimePoint now) const;
  // An administrator knows of those up to now: they are recent no more.
  void Acknowledge();

 private:
  RecentFaults seen_;    // Since the start of the daemon.
  RecentFaults before_;  // Of these, those that are not recent.
  std::optional<base::TimePoint> last_;
};

}  // namespace tier::session
