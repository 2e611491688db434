// SpacePlan: what the files of one start take of their file systems, where that start is only planned. What an earlier
// file has taken, a later one on the same file system has not. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <sys/types.h>

#include "daemon/storage/sizing.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::storage {

class SpacePlan {
 public:
  using Space = std::function<Result<FileSystemSpace>(const std::string&)>;
  // `now`: how full the file system of a path is, without the plan.
  explicit SpacePlan(Space now) : now_(std::move(now)) {}

  Result<FileSystemSpace> Of(const std::string& path) const TIER_EXCLUDES(mutex_);
  // Bytes of the file system of `path`, which is there. Negative: they are given back.
  void Take(const std::string& path, int64_t bytes) TIER_EXCLUDES(mutex_);

 private:
  const Space now_;
  mutable Mutex mutex_;
  std::map<dev_t, int64_t> taken_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::storage
