// Poller: where the engine thread sleeps. A thin owner of one epoll instance. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/session/engine_rest.h"
#include "proto/mapping.h"

namespace tier::session {

class Poller {
 public:
  static constexpr uint32_t kEventsPerWait = 64;  // More stay for the next wait.

  Poller();  // CHECK-fails when no epoll instance is to be had (at start).

  // A doorbell: edge-triggered and never read, so that a ring costs the client one write and the daemon nothing. Wait
  // adds `key`, which is below 2^63, to rung().
  Status AddDoorbell(int fd, uint64_t key);
  // Whether its rings are heard. One that came while they were not is, once they are again.
  void SetDoorbell(int fd, uint64_t key, bool heard);
  const std::vector<uint64_t>& rung() const { return rung_; }
  void ClearRung() { rung_.clear(); }
  // Calls `on_ready` from Wait while `fd` is readable; on_ready clears that. `on_ready` lives as long as the poller.
  Status AddSource(int fd, std::function<void()>* on_ready);
  void Remove(int fd);

  // Sleeps until something is readable, `timeout` has passed (none: without a limit) or a signal comes. Returns how
  // many fds were ready. Other threads may look meanwhile where there is a `rest`.
  uint32_t Wait(std::optional<base::Duration> timeout, EngineRest* rest = nullptr);

 private:
  Status Add(int fd, uint32_t events, uint64_t tag);
  proto::FileDescriptor epoll_;
  std::vector<uint64_t> rung_;  // Keys of doorbells, since ClearRung.
};

}  // namespace tier::session
