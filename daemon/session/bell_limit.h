// BellLimit: how often the clients of one user may ring their doorbells without a message. Each such ring wakes the
// engine, so rings in a loop would take the processor from all others. An honest client does it now and then, when the
// engine has taken the message before the ring arrives: each message earns one. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/base/time.h"

namespace tier::session {

inline constexpr uint32_t kEmptyRingsMax = 64;                                       // At once.
inline constexpr base::Duration kEmptyRingInterval = std::chrono::milliseconds(10);  // One is forgiven in this time.
inline constexpr base::Duration kMuteTime = std::chrono::milliseconds(100);  // Of the doorbell that passed the limit.

class BellLimit {
 public:
  void OnMessages(uint32_t messages) { credit_ = std::min(kEmptyRingsMax, credit_ + messages); }
  // True: the limit is passed.
  bool OnEmptyRing(base::TimePoint now) {
    const auto earned = (now - earned_until_) / kEmptyRingInterval;
    if (earned > 0) {
      credit_ = static_cast<uint32_t>(std::min<int64_t>(kEmptyRingsMax, credit_ + earned));
      earned_until_ = earned_until_ + earned * kEmptyRingInterval;
    }
    if (credit_ == 0) return true;
    --credit_;
    return false;
  }

 private:
  uint32_t credit_ = kEmptyRingsMax;
  base::TimePoint earned_until_{base::Duration{0}};
};

}  // namespace tier::session
