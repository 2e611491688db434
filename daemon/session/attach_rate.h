// AttachRate: how fast the processes of one user may attach. Each attach makes shared memory, three descriptors and a
// turn of the engine, so one user's attach-and-leave in a loop would take the processor from all others. Beyond the
// rate a client waits for its turn, up to kAttachWaitMax; further ones are refused and take no turn.
//
// The generic cell rate algorithm: a user's next turn comes one interval after its last, and up to kAttachBurst turns
// that were not used may be taken at once (the ranks of one launch). Pure: time is passed in. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "daemon/base/time.h"

namespace tier::session {

inline constexpr uint32_t kAttachBurst = 256;
inline constexpr auto kAttachWaitMax = std::chrono::seconds(4);  // A client's handshake ends after 5 s.

class AttachRate {
 public:
  // REQUIRES: per_second > 0.
  explicit AttachRate(uint32_t per_second);
  // From now on. REQUIRES: per_second > 0. Turns that were taken are paid for as they were promised.
  void SetRate(uint32_t per_second);
  // Takes the user's next turn, and returns how long it is until then; zero: now. None: kAttachWaitMax would pass, and
  // no turn is taken.
  std::optional<base::Duration> Take(uint32_t uid, base::TimePoint now);
  size_t users() const { return next_.size(); }  // That have taken a turn lately.

 private:
  void Prune(base::TimePoint now);

  base::Duration interval_{};
  size_t pruned_at_ = 64;                               // Users at which those without a debt are dropped.
  std::unordered_map<uint32_t, base::TimePoint> next_;  // When all turns taken so far are paid for.
};

}  // namespace tier::session
