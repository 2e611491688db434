// CorruptReads: whose pieces came back with a wrong checksum, and from which device.
//
// The idea: a job is named also behind its end, so that one that ends at once is not left out. What is told of are the
// jobs that had some last.
//
// Engine thread. Invariant: at most kCorruptReadsMax entries, each of another job and device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/job_state.h"

namespace tier::tiering {

inline constexpr size_t kCorruptReadsMax = 256;

class CorruptReads {
 public:
  void Note(const JobState& job, uint16_t device) {
    const auto same = [&](const CorruptPieces& each) { return each.job == job.id && each.device == device; };
    const auto entry = std::ranges::find_if(pieces_, same);
    if (entry != pieces_.end()) {
      ++entry->count;
      return;
    }
    TIER_CHECK(pieces_.size() <= kCorruptReadsMax, "{} entries", pieces_.size());
    if (pieces_.size() == kCorruptReadsMax) pieces_.erase(pieces_.begin());
    pieces_.push_back({.job = job.id, .key = job.key, .device = device, .count = 1});
  }
  const std::vector<CorruptPieces>& pieces() const { return pieces_; }  // The oldest entry first.

 private:
  std::vector<CorruptPieces> pieces_;
};

}  // namespace tier::tiering
