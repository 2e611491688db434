#include "daemon/session/uid_quota.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::session {

void UidQuota::SetMax(size_t max, size_t of_one_max) {
  TIER_CHECK(0 < of_one_max && of_one_max <= max, "{} for one user of {}", of_one_max, max);
  max_ = max;
  of_one_max_ = of_one_max;
}

std::optional<uint32_t> UidQuota::OverQuotaUid(uint32_t uid) const {
  if (HeldBy(uid) >= of_one_max_) return uid;
  if (taken_ < max_) return std::nullopt;
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::max_element(held_.begin(), held_.end(), less)->first;
}

void UidQuota::Take(uint32_t uid) {
  TIER_CHECK(!OverQuotaUid(uid), "uid {} has {} of {}, of {} at most {}", uid, HeldBy(uid), taken_, max_, of_one_max_);
  ++held_[uid];
  ++taken_;
}

void UidQuota::Give(uint32_t uid) {
  const auto held = held_.find(uid);
  TIER_CHECK(held != held_.end() && held->second > 0 && taken_ > 0, "uid {} gives, {} are taken", uid, taken_);
  if (--held->second == 0) held_.erase(held);
  --taken_;
}

size_t UidQuota::HeldBy(uint32_t uid) const {
  const auto held = held_.find(uid);
  return held == held_.end() ? 0 : held->second;
}

}  // namespace tier::session
