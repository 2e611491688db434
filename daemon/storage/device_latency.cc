#include "daemon/storage/device_latency.h"

#include <algorithm>
#include <numeric>

#include "daemon/base/check.h"

namespace tier::storage {
namespace {

// There is one writer: a load and a store make no other thread wait.
void Add(std::atomic<uint64_t>& word, uint64_t more) {
  word.store(word.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

size_t BucketOf(base::Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  const auto* const bound = std::ranges::lower_bound(kLatencyBucketsSeconds, seconds);
  return static_cast<size_t>(bound - kLatencyBucketsSeconds.begin());
}

}  // namespace

uint64_t LatencyFigures::count() const { return std::accumulate(requests.begin(), requests.end(), uint64_t{0}); }

double LatencyFigures::Quantile(double part) const {
  TIER_CHECK(part > 0 && part < 1, "the {} quantile", part);
  const uint64_t all = count();
  if (all == 0) return 0;
  const double rank = part * static_cast<double>(all);
  double before = 0;
  for (size_t bucket = 0; bucket < kLatencyBucketsSeconds.size(); ++bucket) {
    const auto here = static_cast<double>(requests[bucket]);
    if (before + here >= rank && here > 0) {
      const double least = bucket == 0 ? 0 : kLatencyBucketsSeconds[bucket - 1];
      return least + (kLatencyBucketsSeconds[bucket] - least) * (rank - before) / here;
    }
    before += here;
  }
  return kLatencyBucketsSeconds.back();  // Longer than all bounds: at least this.
}

LatencyFigures& LatencyFigures::operator+=(const LatencyFigures& other) {
  for (size_t bucket = 0; bucket < kLatencyBuckets; ++bucket) requests[bucket] += other.requests[bucket];
  sum_ns += other.sum_ns;
  bytes += other.bytes;
  return *this;
}

LatencyFigures LatencyByPurpose::Of(Direction direction) const {
  LatencyFigures sum;
  for (const LatencyFigures& each : figures[static_cast<size_t>(direction)]) sum += each;
  return sum;
}

void DeviceLatency::Note(Direction direction, Purpose purpose, base::Duration took, uint64_t bytes) {
  TIER_CHECK(took >= base::Duration{0}, "a request took {} ns", took.count());
  Cell& cell = cells_[static_cast<size_t>(direction)][static_cast<size_t>(purpose)];
  Add(cell.requests[BucketOf(took)], 1);
  Add(cell.sum_ns, static_cast<uint64_t>(took.count()));
  Add(cell.bytes, bytes);
}

LatencyByPurpose DeviceLatency::Read() const {
  LatencyByPurpose all;
  for (size_t direction = 0; direction < kDirections; ++direction) {
    for (size_t purpose = 0; purpose < kPurposes; ++purpose) {
      const Cell& cell = cells_[direction][purpose];
      LatencyFigures& figures = all.figures[direction][purpose];
      for (size_t i = 0; i < kLatencyBuckets; ++i)
        figures.requests[i] = cell.requests[i].load(std::memory_order_relaxed);
      figures.sum_ns = cell.sum_ns.load(std::memory_order_relaxed);
      figures.bytes = cell.bytes.load(std::memory_order_relaxed);
    }
  }
  return all;
}

}  // namespace tier::storage
