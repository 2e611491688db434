// ChangingOwnerCredit: what the arena may grow by although the host has less than its reserve.
//
// The idea: a window that is closed for another owner's would go to the reserve where that lacks something. So the
// arena may have again, for a short time, what it had before windows were closed; not what was given back to the host.
// Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"

namespace tier::memory {

class ChangingOwnerCredit {
 public:
  // A window of an arena of so many bytes is being closed.
  void NoteClosed(uint64_t arena_bytes, base::TimePoint now) {
    TIER_CHECK(now >= last_closed_, "the clock went back");
    standing_ = std::max(standing_, arena_bytes);
    last_closed_ = now;
  }
  void NoteGivenBack(uint64_t bytes) { standing_ -= std::min(standing_, bytes); }
  // What an arena of so many bytes may grow by, where the host leaves it `room`.
  uint64_t RoomFor(uint64_t arena_bytes, uint64_t room, base::TimePoint now) {
    const uint64_t changing = standing_ - std::min(arena_bytes, standing_);
    if (room < changing && now - last_closed_ <= kKeptFor) return changing;
    standing_ = arena_bytes;
    return room;
  }

 private:
  static constexpr std::chrono::seconds kKeptFor{10};

  uint64_t standing_ = 0;  // What the arena had before.
  base::TimePoint last_closed_{};
};

}  // namespace tier::memory
