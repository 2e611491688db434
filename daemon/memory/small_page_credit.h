// SmallPageCredit: how much the arena may still grow in small pages by the last reading of the host.
//
// The idea: a reading is some milliseconds old, so it covers a bounded growth at a time; more is there once another
// reading was asked for. A window that is refused for want of it is remembered: where the arena has less than it may
// have, no maximum rises by which those that wait would be woken. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tier::memory {

class SmallPageCredit {
 public:
  explicit SmallPageCredit(uint64_t reading_covers) : covered_(reading_covers) {}

  uint64_t bytes() const { return bytes_; }
  void Use(uint64_t bytes) { bytes_ -= std::min(bytes_, bytes); }
  void Return(uint64_t bytes) { bytes_ += bytes; }
  // Another reading was asked for, or is under way: the last one covers as much as it can.
  void Extend() {
    const uint64_t more = std::min(rest_, covered_ - std::min(covered_, bytes_));
    bytes_ += more;
    rest_ -= more;
  }
  // A window of so many bytes was refused, and another reading comes.
  void NoteLacked(uint64_t bytes) { lacked_ = std::min(lacked_, bytes); }
  // A reading has found `room`. Returns whether there is enough now for a window that was refused before.
  bool TakeReading(uint64_t room) {
    bytes_ = 0;
    rest_ = room;
    Extend();
    if (room < lacked_) return false;
    lacked_ = kNothing;
    return true;
  }

 private:
  static constexpr uint64_t kNothing = std::numeric_limits<uint64_t>::max();

  const uint64_t covered_;  // Growth at a time.
  uint64_t bytes_ = 0;
  uint64_t rest_ = 0;           // What the reading has found beyond that.
  uint64_t lacked_ = kNothing;  // The least of what was refused.
};

}  // namespace tier::memory
