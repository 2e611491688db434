// RequestFigures: how many requests were answered with which code, and how long waiters waited. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "daemon/base/time.h"
#include "daemon/tiering/api/snapshot.h"

namespace tier::tiering {

class RequestFigures {
 public:
  void CountAnswer(proto::Op op, Code code) { ++answers_[static_cast<size_t>(op)][static_cast<size_t>(code)]; }
  void CountRefusal(RefusalReason reason) { ++refusals_[static_cast<size_t>(reason)]; }
  // Returns `waited` in nanoseconds.
  uint64_t CountWait(base::Duration waited) {
    const auto nanoseconds = static_cast<uint64_t>(std::max<int64_t>(waited.count(), 0));
    const double seconds = static_cast<double>(nanoseconds) * 1e-9;
    const auto bucket = std::lower_bound(kWaitBucketsSeconds.begin(), kWaitBucketsSeconds.end(), seconds);
    ++wait_histogram_[static_cast<size_t>(bucket - kWaitBucketsSeconds.begin())];
    wait_sum_ns_ += nanoseconds;
    return nanoseconds;
  }
  void AddTo(EngineSnapshot* snapshot) const {
    snapshot->requests = answers_;
    snapshot->refusals = refusals_;
    snapshot->wait_histogram = wait_histogram_;
    snapshot->wait_sum_ns = wait_sum_ns_;
  }

 private:
  std::array<std::array<uint64_t, kCodeCount>, proto::kOpCount> answers_{};
  RefusalCounts refusals_{};
  std::array<uint64_t, kWaitBucketsSeconds.size() + 1> wait_histogram_{};
  uint64_t wait_sum_ns_ = 0;
};

}  // namespace tier::tiering
