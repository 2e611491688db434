// See space_plan.h.
#include "daemon/storage/space_plan.h"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>

#include "daemon/base/check.h"
#include "daemon/storage/os_error.h"

namespace tier::storage {

Result<FileSystemSpace> SpacePlan::Of(const std::string& path) const {
  Result<FileSystemSpace> space = now_(path);
  if (!space) return space;
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return FailErrno(errno, "looking at " + path);
  const MutexLock lock(mutex_);
  const auto taken = taken_.find(about.st_dev);
  if (taken == taken_.end()) return space;
  const int64_t left = static_cast<int64_t>(space->available) - taken->second;
  space->available = static_cast<uint64_t>(std::max<int64_t>(left, 0));
  return space;
}

void SpacePlan::Take(const std::string& path, int64_t bytes) {
  TIER_CHECK(!path.empty(), "{} bytes of no file system", bytes);
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return;  // It is gone since it was asked for its space.
  const MutexLock lock(mutex_);
  taken_[about.st_dev] += bytes;
}

}  // namespace tier::storage
