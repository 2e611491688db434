// DriveWrites: how often a day a device is written over, by the bytes that were written to it in the last hours. SSDs
// are sold for so many drive writes a day (DWPD) over their warranty.
//
// Pure: it is told a counter and the time. Thread-compatible. Invariant: the samples are in the order of time, the
// oldest is the only one that may be older than kDriveWritesWindow, and there are kSamplesMax at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "daemon/base/time.h"

namespace tier::storage {

inline constexpr base::Duration kDriveWritesWindow = std::chrono::hours(24);
inline constexpr base::Duration kDriveWritesStep = std::chrono::minutes(5);  // Between two samples that are kept.
// A rate over less would tell of the last checkpoint, not of a day.
inline constexpr base::Duration kDriveWritesLeast = std::chrono::minutes(10);

class DriveWrites {
 public:
  // `written`: bytes since some start, a counter. REQUIRES: neither it nor the time goes back.
  void Note(uint64_t written, base::TimePoint now);
  // Times a day that `capacity` bytes are written. 0: nothing is known yet, for lack of time. REQUIRES: some capacity.
  double PerDay(uint64_t capacity) const;
  void CheckInvariants() const;

 private:
  struct Sample {
    uint64_t written = 0;
    base::TimePoint at;
  };
  static constexpr size_t kSamplesMax = static_cast<size_t>(kDriveWritesWindow / kDriveWritesStep) + 2;

  std::deque<Sample> kept_;
  Sample last_;
};

}  // namespace tier::storage
