// AheadQueue: when jobs are looked at again for windows that were made ahead of need and are not needed (growth.h).
// Engine thread only.
#pragma once

#include <deque>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

class AheadQueue {
 public:
  struct Item {
    JobId job{};
    base::TimePoint at;
  };

  // REQUIRES: not before the last one's time.
  void Add(JobId job, base::TimePoint at) {
    TIER_CHECK(items_.empty() || items_.back().at <= at, "job {}", static_cast<uint64_t>(job));
    items_.push_back({job, at});
  }
  bool any() const { return !items_.empty(); }
  const Item& oldest() const { return items_.front(); }  // REQUIRES: any().
  void PopOldest() { items_.pop_front(); }

 private:
  std::deque<Item> items_;
};

}  // namespace tier::tiering
