// Poller: where the engine thread sleeps. A thin owner of one epoll instance. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "daemon/base/time.h"
#include "proto/mapping.h"

namespace tier::session {

class Poller {
 public:
  static constexpr uint32_t kEventsPerWait = 64;  // More stay for the next wait.

  Poller();  // CHECK-fails when no epoll instance is to be had (at start).

  // A doorbell: edge-triggered and never read, so that a ring costs the client one write and the daemon nothing.
  Status AddDoorbell(int fd);
  // Calls `on_ready` from Wait while `fd` is readable; on_ready clears that. `on_ready` lives as long as the poller.
  Status AddSource(int fd, std::function<void()>* on_ready);
  void Remove(int fd);

  // Sleeps until something is readable, `timeout` has passed (none: for ever) or a signal comes. Returns how many fds
  // were ready.
  uint32_t Wait(std::optional<base::Duration> timeout);

 private:
  Status Add(int fd, uint32_t events, std::function<void()>* on_ready);
  proto::FileDescriptor epoll_;
};

}  // namespace tier::session
