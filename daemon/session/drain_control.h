// DrainControl: drains of a job and of the node, as ControlApi has them. A drain writes dirty bytes to SSD; that of the
// node also closes it to new jobs and processes, until it is undrained or stopped in order; a crash does not end it.
//
// Any thread but the engine's; draining() of any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/base/mailbox.h"
#include "daemon/session/control_api.h"
#include "daemon/session/drain_mark.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/event_log.h"
#include "daemon/session/session_table.h"

namespace tier::session {

inline constexpr auto kDrainSlack = std::chrono::seconds(2);  // The engine's own timeout comes first.

struct DrainControlParts {
  EngineCalls& calls;
  base::Mailbox& mailbox;
  JobService& jobs;  // Touched only on the engine thread, as the sessions.
  SessionTable& sessions;
  EventLog& events;
  bool has_ssd_tier = true;
  std::function<void()> on_closed;  // No job comes any more: figures of before are not told from here on.
  std::string mark_directory;       // Of the DrainMark. Empty: a crash ends a drain.
};

class DrainControl {
 public:
  explicit DrainControl(const DrainControlParts& parts) : parts_(parts), mark_(parts.mark_directory) {}

  // As ControlApi has them.
  Result<Drained> Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout);
  Status Undrain(const Caller& caller);

  // Where the daemon before this one was drained and crashed: drains this one. Before it serves.
  void Restore();
  // Tells watchers of that, who came since.
  void TellRestored();

  // The daemon ends: it drains, and cannot be undrained. The next one is not drained.
  void SetStopping();
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  bool draining() const { return drained_.load(std::memory_order_relaxed) || stopping(); }

 private:
  // Engine thread, as the next.
  void Start(const Caller& caller, const std::string& job, uint32_t timeout_ms, SessionFlush::Done done);
  void Write(tiering::JobId job, uint32_t timeout_ms, const std::shared_ptr<SessionFlush::Group>& group);

  // The caller's thread. `unmarked`: why a crash would end the drain.
  bool PostStart(bool drains_node, std::function<void()> start, std::string* unmarked);

  const DrainControlParts parts_;
  const DrainMark mark_;
  std::mutex marking_;                // The engine thread is asked in the order in which the mark is changed.
  std::atomic<bool> drained_{false};  // By request of an administrator.
  std::atomic<bool> stopping_{false};
};

}  // namespace tier::session
