// EngineLoop: the life of the engine thread. Takes what other threads posted and what clients put into their rings,
// gives the engine its turn, shows clients their answers, and sleeps when there is nothing to do: woken by doorbells,
// the mailbox, finished I/O or the engine's next deadline.
//
// Before it sleeps it says so on the engine page and looks once more (proto/ring.h), so that no client rings in vain.
// Run, RunOnce: the engine thread. Stop, progress: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mailbox.h"
#include "daemon/session/engine_page.h"
#include "daemon/session/engine_rest.h"
#include "daemon/session/job_service.h"
#include "daemon/session/poller.h"
#include "daemon/session/session_table.h"
#include "daemon/session/spin_policy.h"
#include "daemon/tiering/api/engine_port.h"

namespace tier::session {

// Where the loop finds its parts; all outlive it.
struct EngineLoopParts {
  tiering::EnginePort& engine;
  SessionTable& sessions;
  JobService& jobs;
  base::Mailbox& mailbox;
  EnginePageOwner& page;
  Poller& poller;
  const base::Clock& clock;
  EngineRest* rest = nullptr;  // Null: no other thread looks while it sleeps.
};

// While answers lie unread in a backlog the loop looks again after this long, doubling up to the maximum.
inline constexpr base::Duration kBacklogRetryFirst = std::chrono::microseconds(100);
inline constexpr base::Duration kBacklogRetryMax = std::chrono::milliseconds(50);

// While it is awake the loop hears doorbells this often: each is a system call, and only sessions that were silent
// ring.
inline constexpr base::Duration kBellInterval = std::chrono::microseconds(20);
inline constexpr uint32_t kPassesPerBellMax = 64;

// Releases of read leases ring no bell while nothing waits for one (proto/ring.h); leases open, it looks this often.
inline constexpr base::Duration kReleaseLatenessMax = std::chrono::milliseconds(proto::kReleaseLatenessMaxMs);

class EngineLoop {
 public:
  EngineLoop(const EngineLoopParts& parts, SpinPolicy spin);

  // Wakes the loop while `fd` is readable; `clear` makes it unreadable. Before Run.
  Status AddWakeup(int fd, std::function<void()> clear);
  void Run();
  void Stop() {
    stopping_.store(true, std::memory_order_release);
  }  // Takes effect at the next wake-up: post something.

  // One pass without sleeping. Returns whether anything happened. For tests, and Run's body.
  bool RunOnce();
  // The two halves of a sleep, for Run and for a test that waits in its place. StartSleep tells clients that the engine
  // sleeps and looks once more. True: wait at the poller, for *longest at most (none: without a limit), then EndSleep.
  // False: there is something to do after all.
  bool StartSleep(std::optional<base::Duration>* longest);
  void EndSleep();
  // Passes made: a watchdog sees by it that the thread lives.
  uint64_t passes() const { return passes_.load(std::memory_order_relaxed); }
  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  // From this pass on. On the loop's thread.
  void SetSpin(SpinMode mode) { spin_.SetMode(mode); }
  // Spins that ended because another thread had the processor.
  uint64_t spin_pauses() const { return spin_pauses_.load(std::memory_order_relaxed); }

 private:
  void HearBells();
  void Sleep();
  std::optional<base::Duration> SleepTime();

  EngineLoopParts parts_;
  SpinPolicy spin_;
  std::vector<std::unique_ptr<std::function<void()>>> wakeups_;
  std::function<void()> on_mailbox_ = [this] { parts_.mailbox.ClearWake(); };
  base::TimePoint now_;
  base::Duration backlog_retry_ = kBacklogRetryFirst;
  base::TimePoint bells_heard_{base::Duration::min() / 2};
  uint32_t passes_since_bells_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> passes_{0};
  std::atomic<uint64_t> sleeps_{0};
  std::atomic<uint64_t> spin_pauses_{0};
};

}  // namespace tier::session
