// SpinPolicy: how long the engine looks for work before it sleeps. Waking a sleeping core costs 20 to 50 µs, looking
// costs a core: `auto` looks for 20 µs after the last message, and not at all on a machine with few CPUs, where the
// client needs them. `always` looks for as long as no other thread wants the processor: between looks the engine yields
// (engine_loop.cc), and if that took long, another thread has run. It then sleeps between messages for a while, as with
// `never`: a thread that slept is run before those that kept computing, one that spun after them. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "daemon/base/time.h"

namespace tier::session {

enum class SpinMode : uint8_t { kAuto, kAlways, kNever };
constexpr std::string_view SpinModeName(SpinMode mode) {
  return mode == SpinMode::kAuto ? "auto" : mode == SpinMode::kAlways ? "always" : "never";
}

inline constexpr base::Duration kSpinDuration = std::chrono::microseconds(20);
inline constexpr unsigned kSpinCpusMin = 4;
// Looks are microseconds apart and interrupts take tens of them: this long was another thread's turn.
inline constexpr base::Duration kProcessorLost = std::chrono::microseconds(100);
// For how long no spin is tried after that. Doubled while spins last less than the maximum before the next loss.
inline constexpr base::Duration kSpinPauseFirst = std::chrono::milliseconds(10);
inline constexpr base::Duration kSpinPauseMax = std::chrono::seconds(1);

class SpinPolicy {
 public:
  // `cpus`: those this process may run on (AllowedCpus).
  SpinPolicy(SpinMode mode, unsigned cpus) : mode_(mode), many_cpus_(cpus >= kSpinCpusMin) {}
  // From now on.
  void SetMode(SpinMode mode) { mode_ = mode; }

  // A pass heard a message, or did something else that may have taken long.
  void OnMessage(base::TimePoint now) { last_message_ = now; }
  void OnWork() { spinning_ = false; }

  // After a pass without work: whether to look again at once, instead of sleeping.
  bool ShouldSpin(base::TimePoint now) {
    if (spinning_ && now - last_look_ >= kProcessorLost) Pause(now);
    const bool auto_spins = mode_ == SpinMode::kAuto && many_cpus_ && now - last_message_ < kSpinDuration;
    spinning_ = now >= pause_end_ && (mode_ == SpinMode::kAlways || auto_spins);
    last_look_ = now;
    return spinning_;
  }
  SpinMode mode() const { return mode_; }
  uint64_t pauses() const { return pauses_; }

 private:
  void Pause(base::TimePoint now) {
    const bool again = now - pause_end_ < kSpinPauseMax;
    pause_ = again ? std::clamp(2 * pause_, kSpinPauseFirst, kSpinPauseMax) : kSpinPauseFirst;
    pause_end_ = now + pause_;
    ++pauses_;
  }

  SpinMode mode_;
  const bool many_cpus_;
  base::TimePoint last_message_{base::Duration::min() / 2};
  bool spinning_ = false;  // Since the last look.
  base::TimePoint last_look_;
  base::TimePoint pause_end_{base::Duration::min() / 2};
  base::Duration pause_{0};
  uint64_t pauses_ = 0;
};

unsigned AllowedCpus();  // By sched_getaffinity; at least 1.

}  // namespace tier::session
