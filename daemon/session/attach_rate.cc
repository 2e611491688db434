#include "daemon/session/attach_rate.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::session {

AttachRate::AttachRate(uint32_t per_second) { SetRate(per_second); }

void AttachRate::SetRate(uint32_t per_second) {
  TIER_CHECK(per_second > 0, "{} per second", per_second);
  interval_ = base::Duration(std::chrono::seconds(1)) / per_second;
  TIER_CHECK(interval_ > base::Duration{0}, "{} per second", per_second);
}

std::optional<base::Duration> AttachRate::Take(uint32_t uid, base::TimePoint now) {
  if (next_.size() >= pruned_at_) Prune(now);
  base::TimePoint& next = next_.emplace(uid, now).first->second;
  next = std::max(next, now);
  const base::Duration wait = (next - now) - (kAttachBurst - 1) * interval_;
  // With a slow rate the very next turn may be later than that.
  if (wait > std::max<base::Duration>(kAttachWaitMax, interval_)) return std::nullopt;
  next = next + interval_;
  return std::max(wait, base::Duration{0});
}

void AttachRate::Prune(base::TimePoint now) {
  std::erase_if(next_, [now](const auto& user) { return user.second <= now; });
  pruned_at_ = std::max<size_t>(64, 2 * next_.size());
}

}  // namespace tier::session
