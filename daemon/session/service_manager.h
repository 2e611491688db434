// ServiceManager: what systemd, or another program that sets NOTIFY_SOCKET, is told, and the sockets it may have opened
// for us. The protocol is documented as stable and free to implement (sd_notify(3), sd_listen_fds(3)); three datagrams
// are not worth a library that brings five others into every container. Socket thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "proto/mapping.h"

namespace tier::session {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES and removes them from the
  // environment. Call once, before threads start.
  static ServiceManager FromEnvironment();

  bool present() const { return !notify_socket_.empty(); }
  // "READY=1\nSTATUS=…". Best effort: a service manager that does not listen is not our concern.
  void Notify(const std::string& state) const;
  // How often WATCHDOG=1 is expected; none: not at all.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

  // A passed socket by its name in the unit (FileDescriptorName=), or the only one there is. Empty: none.
  proto::FileDescriptor TakeSocket(const std::string& name);

 private:
  struct Passed {
    std::string name;
    proto::FileDescriptor socket;
  };
  std::string notify_socket_;
  std::optional<std::chrono::microseconds> watchdog_;
  std::vector<Passed> passed_;
};

}  // namespace tier::session
