// Unanswered: changes that were made and whose callers were told TIMEOUT, so that one who tries again is not told that
// there is nothing to change. Bounded: beyond kUnansweredMax the one that comes first in order is dropped. Thread-safe.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "proto/mutex.h"

namespace tier::session {

inline constexpr size_t kUnansweredMax = 4096;

class Unanswered {
 public:
  void Add(const std::string& change) TIER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changes_.insert(change);
    if (changes_.size() > kUnansweredMax) changes_.erase(changes_.begin());
  }
  void Remove(const std::string& change) TIER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changes_.erase(change);
  }
  bool Contains(const std::string& change) const TIER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changes_.contains(change);
  }

 private:
  mutable Mutex mutex_;
  std::set<std::string> changes_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::session
