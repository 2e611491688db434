#include "daemon/session/device_faults.h"

#include "daemon/base/check.h"

namespace tier::session {

void DeviceFaults::Note(const storage::DeviceTraffic& traffic, base::TimePoint now) {
  TIER_CHECK(traffic.errors >= seen_.errors && traffic.corrupt >= seen_.corrupt,
             "{} errors and {} corrupt pieces after {} and {}", traffic.errors, traffic.corrupt, seen_.errors,
             seen_.corrupt);
  if (traffic.errors == seen_.errors && traffic.corrupt == seen_.corrupt) return;
  if (last_ && now - *last_ >= kFaultsRecentFor) Acknowledge();
  seen_ = {.errors = traffic.errors, .corrupt = traffic.corrupt};
  last_ = now;
}

RecentFaults DeviceFaults::Recent(base::TimePoint now) const {
  if (!last_ || now - *last_ >= kFaultsRecentFor) return {};
  TIER_CHECK(before_.errors <= seen_.errors && before_.corrupt <= seen_.corrupt, "{} of {} errors are not recent",
             before_.errors, seen_.errors);
  return {.errors = seen_.errors - before_.errors, .corrupt = seen_.corrupt - before_.corrupt};
}

void DeviceFaults::Acknowledge() {
  before_ = seen_;
  last_.reset();
}

}  // namespace tier::session
