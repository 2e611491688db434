// SnapshotRate: how often figures of the engine are taken, however many ask. Every caller may ask for figures, and they
// cost the engine thread time: beyond so many in a tick calls share the last. A tick is `share` times as long as its
// figures took, at least, so that they cost one part in `share` of that thread. Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "daemon/base/time.h"

namespace tier::session {

inline constexpr auto kSnapshotTick = std::chrono::milliseconds(50);

class SnapshotRate {
 public:
  SnapshotRate(uint32_t per_tick_max, int share) : per_tick_max_(per_tick_max), share_(share) {}

  // May figures be taken now? The first ones always may.
  bool MayTake(base::TimePoint now) {
    if (now >= ends_) {
      began_ = now;
      ends_ = now + kSnapshotTick;
      spent_ = {};
      taken_ = 0;
    }
    return taken_ < per_tick_max_ && share_ * spent_ < kSnapshotTick;
  }
  // The next figures may be taken: those before are of another state of the node.
  void EndTick() { ends_ = {}; }
  void NoteTaken(base::Duration took) {
    ++taken_;
    spent_ += took;
    ends_ = std::max(ends_, began_ + share_ * spent_);
  }

 private:
  const uint32_t per_tick_max_;
  const int share_;
  base::TimePoint began_{};
  base::TimePoint ends_{};
  base::Duration spent_{};  // On the figures of this tick.
  uint32_t taken_ = 0;
};

}  // namespace tier::session
