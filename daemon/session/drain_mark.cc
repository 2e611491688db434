#include "daemon/session/drain_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "daemon/storage/os_error.h"
#include "proto/mapping.h"

namespace tier::session {

bool DrainMark::present() const { return !path_.empty() && ::access(path_.c_str(), F_OK) == 0; }

Status DrainMark::Set() const {
  if (path_.empty()) return {};
  const proto::FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file) return {};
  return Fail(storage::CodeOfErrno(errno), fmt::format("cannot make {}: {}", path_, std::strerror(errno)));
}

void DrainMark::Remove() const {
  if (!path_.empty()) (void)::unlink(path_.c_str());
}

}  // namespace tier::session
