// InstanceLock: one daemon per socket directory. The lock is a flock on `tierd.lock` in it, which the kernel drops
// when the holder ends, however it ends; the file stays and names the last holder, unless that one ended in order. Only
// the daemon's user can open it (0600): a process that can open a file can hold its lock.
// The holder of the lock may replace stale sockets.
#pragma once

#include <string>

#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

class InstanceLock {
 public:
  // Makes the directory (mode 0700 if `only_owner`, else 0755) where it is missing. ALREADY_EXISTS names the process
  // that holds it, and says so when that is not the tierd that took it last. DENIED where the directory is not to be
  // trusted (proto/socket_places.h). DENIED, NOT_FOUND, INVALID or NO_SPACE where it cannot be made or written.
  static Result<InstanceLock> Take(const std::string& directory, bool only_owner);

  // The last holder did not come to MarkEnded: what it had under way may still be landing on its devices.
  bool predecessor_crashed() const { return predecessor_crashed_; }
  void MarkEnded();

 private:
  InstanceLock(proto::FileDescriptor file, bool predecessor_crashed)
      : file_(std::move(file)), predecessor_crashed_(predecessor_crashed) {}
  proto::FileDescriptor file_;
  bool predecessor_crashed_;
};

// What keeps other users from the sockets in that directory, with the line that lets them in; empty: nothing does.
std::string ClosedToOthers(const std::string& directory);

}  // namespace tier::session
