// EventLog: reports events of the daemon to its watchers: operators' tools by gRPC, and the daemon's own log.
//
// The idea: each watcher has its own thread and a short queue, so that a slow one loses its own events and delays no
// other. Sequence numbers count the events that a watcher may see, lost ones too, so a gap shows a loss.
//
// Thread-safe. Invariants: watchers <= kWatchersMax, those of one uid <= kWatchersPerUidMax; the last
// kWatchersPerUidMax places are for administrators; events queued for one watcher <= kEventsQueuedMax.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/job_registry.h"

namespace tier::session {

inline constexpr size_t kWatchersMax = 64;
inline constexpr size_t kWatchersPerUidMax = 8;  // Of an administrator's calls and of others' each.
inline constexpr size_t kEventsQueuedMax = 1024;

class EventLog {
 public:
  EventLog();
  ~EventLog();

  // `job` null: the event is about the machine and every watcher may see it; else only watchers that may see the job.
  void Emit(const char* kind, const Job* job, std::string message);
  // NO_MEMORY names the limit that is reached, of watchers or of the system's threads. Destroying the subscription
  // waits for a callback under way, so never destroy it inside one.
  Result<std::shared_ptr<void>> Watch(const Caller& caller, std::function<void(const Event&)> callback);

  size_t watchers() const;
  uint64_t dropped() const;  // Events that watchers were too slow for, since start.

 private:
  class Watcher;
  struct Shared;
  static Status CheckRoomFor(const std::vector<Watcher*>& watchers, const Caller& caller);
  std::shared_ptr<Shared> shared_;
};

}  // namespace tier::session
