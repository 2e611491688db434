#include "daemon/session/private_lifetime.h"

#include <algorithm>

namespace tier::session {

void PrivateLifetime::OnSessionCount(size_t sessions, base::TimePoint now) {
  sessions_ = sessions;
  unattached_since_.reset();
  if (sessions == 0) unattached_since_ = now;
}

void PrivateLifetime::OnStarterDied(base::TimePoint now) {
  if (!starter_died_) starter_died_ = now;
}

std::optional<base::TimePoint> PrivateLifetime::end() const {
  if (sessions_ > 0) return std::nullopt;
  if (unattached_since_) return *unattached_since_ + kEndAfterLastSession;
  if (starter_died_) return *starter_died_ + kEndAfterStarter;
  return std::nullopt;
}

}  // namespace tier::session
