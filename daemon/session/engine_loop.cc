#include "daemon/session/engine_loop.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

// While the loop spins: a few microseconds. Another thread that wants the processor, perhaps the client that the loop
// waits for, gets it then. The spin policy learns from how long that took.
constexpr uint32_t kIdlePassesPerYield = 16;

void RelaxCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

unsigned AllowedCpus() {
  // Larger than any machine's mask, so that EINVAL cannot be about its size.
  constexpr size_t kCpusMax = 8192;
  cpu_set_t* set = CPU_ALLOC(kCpusMax);
  const size_t size = CPU_ALLOC_SIZE(kCpusMax);
  unsigned cpus = 1;
  if (set != nullptr && ::sched_getaffinity(0, size, set) == 0) cpus = static_cast<unsigned>(CPU_COUNT_S(size, set));
  CPU_FREE(set);
  return std::max(cpus, 1u);
}

EngineLoop::EngineLoop(const EngineLoopParts& parts, SpinPolicy spin) : parts_(parts), spin_(spin) {
  const auto added = parts_.poller.AddSource(parts_.mailbox.wake_fd(), &on_mailbox_);
  TIER_CHECK(added.has_value(), "{}", added.error().message);
}

Status EngineLoop::AddWakeup(int fd, std::function<void()> clear) {
  TIER_CHECK(fd >= 0 && clear && passes() == 0, "fd {} passes {}", fd, passes());
  wakeups_.push_back(std::make_unique<std::function<void()>>(std::move(clear)));
  return parts_.poller.AddSource(fd, wakeups_.back().get());
}

bool EngineLoop::RunOnce() {
  passes_.store(passes() + 1, std::memory_order_relaxed);  // No other thread writes it.
  const base::TimePoint before = now_;
  now_ = parts_.clock.Now();
  TIER_CHECK(now_ >= before, "time went back by {} ns", (before - now_).count());
  // Rings first: what a control call sees or ends includes every release that was posted before it.
  HearBells();
  bool heard = parts_.sessions.Receive(now_) > 0;
  if (!parts_.mailbox.empty()) heard |= parts_.mailbox.Drain() > 0;
  if (heard) spin_.OnMessage(now_);
  bool happened = parts_.engine.Turn(now_);
  happened |= parts_.sessions.Publish();
  if (const auto expiry = parts_.jobs.NextExpiry(); expiry && *expiry <= now_) {
    parts_.jobs.CloseExpired(now_);
    happened = true;
  }
  if (heard || happened) backlog_retry_ = kBacklogRetryFirst;
  return heard || happened;
}

void EngineLoop::HearBells() {
  const bool due = ++passes_since_bells_ >= kPassesPerBellMax || now_ - bells_heard_ >= kBellInterval;
  if (!due || parts_.sessions.watch().all_watched()) return;
  passes_since_bells_ = 0;
  bells_heard_ = now_;
  parts_.poller.Wait(base::Duration{0});
}

void EngineLoop::Run() {
  uint32_t idle_passes = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (RunOnce()) {
      idle_passes = 0;
      spin_.OnWork();
    } else if (!spin_.ShouldSpin(now_)) {
      spin_pauses_.store(spin_.pauses(), std::memory_order_relaxed);  // A loss ends a spin: none is missed.
      Sleep();
    } else if (++idle_passes % kIdlePassesPerYield == 0) {
      std::this_thread::yield();
    } else {
      RelaxCpu();
    }
  }
}

std::optional<base::Duration> EngineLoop::SleepTime() {
  std::optional<base::Duration> longest;
  const auto until = [&](std::optional<base::TimePoint> deadline) {
    if (deadline) longest = std::min(longest.value_or(base::Duration::max()), *deadline - now_);
  };
  until(parts_.engine.NextDeadline());
  until(parts_.jobs.NextExpiry());
  until(parts_.sessions.watch().NextUnmute());
  if (parts_.sessions.backlogged()) {
    longest = std::min(longest.value_or(base::Duration::max()), backlog_retry_);
    backlog_retry_ = std::min(2 * backlog_retry_, kBacklogRetryMax);
  }
  return longest;
}

bool EngineLoop::StartSleep(std::optional<base::Duration>* longest) {
  const bool patiently = parts_.engine.ReleasesCanWait();
  // Releases may lie in rings without a bell, and a sweep that looks for them continues in the next pass. Unless the
  // engine sleeps patiently, a request may wait for one of them.
  RingWatch& watch = parts_.sessions.watch();
  if (patiently ? watch.sweeping() : watch.SweepBeforeSleep(now_)) return false;
  parts_.page.SetSleeping(patiently ? proto::kSleepingPatiently : proto::kSleeping);
  if (patiently) watch.OnPatientSleep();
  if (!parts_.mailbox.empty() || parts_.sessions.HasRequests()) {
    parts_.page.SetSleeping(proto::kAwake);
    return false;
  }
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  *longest = SleepTime();
  if (patiently) *longest = std::min(longest->value_or(base::Duration::max()), kReleaseLatenessMax);
  return true;
}

void EngineLoop::EndSleep() {
  now_ = parts_.clock.Now();
  bells_heard_ = now_;
  parts_.page.SetSleeping(proto::kAwake);
}

void EngineLoop::Sleep() {
  std::optional<base::Duration> longest;
  if (!StartSleep(&longest)) return;
  parts_.poller.Wait(longest, parts_.rest);
  EndSleep();
}

}  // namespace tier::session
