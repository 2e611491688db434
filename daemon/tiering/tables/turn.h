// Turn: which turn it is, its time, and whether it did anything. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "daemon/base/time.h"

namespace tier::tiering {

class Turn {
 public:
  // Time never goes back.
  void Begin(base::TimePoint now) {
    now_ = std::max(now_, now);
    ++number_;
  }
  base::TimePoint now() const { return now_; }
  uint64_t number() const { return number_; }

  // The turn did something: another one may follow at once.
  void NoteProgress(bool progress = true) { progress_ |= progress; }
  bool TakeProgress() { return std::exchange(progress_, false); }

  // The replies of this turn are being published. publications() counts such turns.
  void NotePublication() { ++publications_; }
  uint32_t publications() const { return publications_; }

 private:
  base::TimePoint now_;
  uint64_t number_ = 0;
  uint32_t publications_ = 0;
  bool progress_ = false;
};

}  // namespace tier::tiering
