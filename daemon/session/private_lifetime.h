// PrivateLifetime: when a private daemon, which some program started for itself, should end: a few seconds after its
// last session, or a while after the program that started it died without any session attached. Pure; told the time.
#pragma once

#include <cstddef>
#include <optional>

#include "daemon/base/time.h"

namespace tier::session {

inline constexpr base::Duration kEndAfterLastSession = std::chrono::seconds(5);
inline constexpr base::Duration kEndAfterStarter = std::chrono::seconds(30);

class PrivateLifetime {
 public:
  void OnSessionCount(size_t sessions, base::TimePoint now);
  void OnStarterDied(base::TimePoint now);
  // When to end, were nothing to change.
  std::optional<base::TimePoint> end() const;

 private:
  size_t sessions_ = 0;
  std::optional<base::TimePoint> unattached_since_;  // The last session ended then.
  std::optional<base::TimePoint> starter_died_;
};

}  // namespace tier::session
