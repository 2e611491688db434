// DeviceLatency: how long the requests of one device take, from the moment it is given them to the moment it answers,
// by direction and by what they are for. Requests that failed count too: they kept others waiting as long.
//
// Note: one thread, the device's. Read: any thread, at any time; a figure that is noted meanwhile may be in one number
// and not yet in another. Nothing is allocated.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/base/time.h"
#include "daemon/storage/transfer.h"

namespace tier::storage {

// Upper bounds of the buckets; the last bucket, behind them, is of all that took longer. NVMe devices answer small
// reads in tens of microseconds.
inline constexpr std::array<double, 18> kLatencyBucketsSeconds = {
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0};
inline constexpr size_t kLatencyBuckets = kLatencyBucketsSeconds.size() + 1;
inline constexpr size_t kDirections = 2;

struct LatencyFigures {  // Counters.
  std::array<uint64_t, kLatencyBuckets> requests{};
  uint64_t sum_ns = 0;
  uint64_t bytes = 0;  // That these requests moved.

  uint64_t count() const;
  // Seconds that so large a part of the requests did not exceed, within the bucket by a straight line, as Prometheus'
  // histogram_quantile has it. 0: there was none. REQUIRES: 0 < part < 1.
  double Quantile(double part) const;
  LatencyFigures& operator+=(const LatencyFigures& other);
};

struct LatencyByPurpose {
  std::array<std::array<LatencyFigures, kPurposes>, kDirections> figures{};

  const LatencyFigures& Of(Direction direction, Purpose purpose) const {
    return figures[static_cast<size_t>(direction)][static_cast<size_t>(purpose)];
  }
  LatencyFigures Of(Direction direction) const;  // All purposes together.
};

class DeviceLatency {
 public:
  void Note(Direction direction, Purpose purpose, base::Duration took, uint64_t bytes);
  LatencyByPurpose Read() const;

 private:
  struct Cell {
    std::array<std::atomic<uint64_t>, kLatencyBuckets> requests{};
    std::atomic<uint64_t> sum_ns{0};
    std::atomic<uint64_t> bytes{0};
  };
  std::array<std::array<Cell, kPurposes>, kDirections> cells_{};
};

}  // namespace tier::storage
