// ChangingOwnerCredit: what the arena may grow by in small pages although the host has less than its reserve.
//
// The idea: a window that is closed for another owner's would go to the reserve where that lacks something. So as much
// as was closed may be made again, for a short time; not what was given back to the host. Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"

namespace tier::memory {

class ChangingOwnerCredit {
 public:
  void NoteClosed(uint64_t bytes, base::TimePoint now) {
    TIER_CHECK(now >= last_closed_, "the clock went back");
    bytes_ += bytes;
    last_closed_ = now;
  }
  void NoteMade(uint64_t bytes) { bytes_ -= std::min(bytes_, bytes); }
  // What the arena may grow by, where the host leaves it `room`.
  uint64_t RoomFor(uint64_t room, base::TimePoint now) {
    if (room < bytes_ && now - last_closed_ <= kKeptFor) return bytes_;
    bytes_ = 0;
    return room;
  }

 private:
  static constexpr std::chrono::seconds kKeptFor{10};

  uint64_t bytes_ = 0;  // Closed, and not made again.
  base::TimePoint last_closed_{};
};

}  // namespace tier::memory
