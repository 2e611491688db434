// InstanceLock: one daemon per socket directory. The lock is a flock on `tierd.lock` in it, which the kernel drops
// when the holder ends, however it ends; the file stays and names the last holder. Whoever holds the lock may replace
// stale sockets.
#pragma once

#include <string>

#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

class InstanceLock {
 public:
  // Makes the directory (mode 0700 if `only_owner`, else 0755) where it is missing. ALREADY_EXISTS names the process that holds it.
  static Result<InstanceLock> Take(const std::string& directory, bool only_owner);

 private:
  explicit InstanceLock(proto::FileDescriptor file) : file_(std::move(file)) {}
  proto::FileDescriptor file_;
};

}  // namespace tier::session
