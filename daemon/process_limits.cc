#include "daemon/process_limits.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <fmt/format.h>

#include "daemon/base/capability.h"
#include "daemon/base/format_bytes.h"

namespace tier {

size_t OpenFileLimit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 1024;
}

size_t OpenFileLimitMax() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_max) : OpenFileLimit();
}

std::string LockableText() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "any amount of memory";
  const std::string most = base::FormatBytes(limit.rlim_cur);
  if (!base::HasCapability(CAP_IPC_LOCK)) return most + " of memory";
  return fmt::format("any amount of memory (CAP_IPC_LOCK lifts the limit of {})", most);
}

}  // namespace tier
