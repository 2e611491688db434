// EventLog: reports events of the daemon to its watchers: operators' tools by gRPC, and the daemon's own log.
//
// The idea: each watcher has its own thread and a short queue, so that a slow one loses its own events and delays no
// other, and is told how many. The latest events are kept, so that who comes back goes on behind the last one that it
// has: those of jobs and those of the machine apart, so that no user pushes out what is told of a device.
//
// Sequence numbers count all events of the daemon, from a number on that a later daemon does not begin at again.
//
// Thread-safe. Invariants: watchers <= kWatchersMax, those of one uid <= kWatchersPerUidMax; the last
// kWatchersPerUidMax places are for administrators; events queued for one watcher <= kEventsQueuedMax, beside those
// that were kept when it came and what it is told of lost ones; events kept <= kEventsKeptMax of either kind.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/job_registry.h"

namespace tier::session {

inline constexpr size_t kWatchersMax = 64;
inline constexpr size_t kWatchersPerUidMax = 8;  // Of an administrator's calls and of others' each.
inline constexpr size_t kEventsQueuedMax = 1024;
inline constexpr size_t kEventsKeptMax = 2048;       // Of jobs; and as many of the machine.
inline constexpr size_t kKeptMessageBytesMax = 512;  // A longer one is kept in part.
inline constexpr char kEventsLost[] = "events_lost";

class EventLog {
 public:
  // The first event has the next number.
  explicit EventLog(uint64_t last_sequence = 0);
  ~EventLog();

  // Microseconds of the wall clock: no daemon before this one has told of so many events.
  static uint64_t SequenceOfNow();

  // `job` null: the event is about the machine and every watcher may see it; else only watchers that may see the job.
  void Emit(const char* kind, const Job* job, std::string message);
  // Of the machine, with a sentence that is for administrators; others are told `for_others` in its place.
  void EmitForAdministrators(const char* kind, std::string message, std::string for_others);
  // NO_MEMORY names the limit that is reached, of watchers or of the system's threads. Destroying the subscription
  // waits for a callback under way, so never destroy it inside one.
  // `since`: first come the events that Recent would give.
  Result<std::shared_ptr<void>> Watch(const Caller& caller, std::function<void(const Event&)> callback,
                                      std::optional<uint64_t> since = std::nullopt);
  // The kept events behind `since` that the caller may see; 0: all of them. Where some behind it are gone, of this
  // daemon or of an earlier one, kEventsLost stands in their place.
  std::vector<Event> Recent(const Caller& caller, uint64_t since) const;

  size_t watchers() const;
  uint64_t dropped() const;  // Events that watchers were too slow for, since start.

 private:
  class Watcher;
  struct Shared;
  void Tell(Event event, const Job* job, std::optional<std::string> for_others);
  static Status CheckRoomFor(const std::vector<Watcher*>& watchers, const Caller& caller);
  std::shared_ptr<Shared> shared_;
};

}  // namespace tier::session
