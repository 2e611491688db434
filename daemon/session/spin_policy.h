// SpinPolicy: how long the engine looks for work before it sleeps. Waking a sleeping core costs 20 to 50 µs, looking
// costs a core, though it gives way now and then (engine_loop.cc): `auto` looks for 20 µs after the last message, and
// not at all on a machine with few CPUs, where the client needs them. Pure.
#pragma once

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

class SpinPolicy {
 public:
  // `cpus`: those this process may run on (AllowedCpus).
  SpinPolicy(SpinMode mode, unsigned cpus) : mode_(mode), spins_(mode == SpinMode::kAuto && cpus >= kSpinCpusMin) {}

  void OnMessage(base::TimePoint now) { last_message_ = now; }
  bool ShouldSpin(base::TimePoint now) const {
    return mode_ == SpinMode::kAlways || (spins_ && now - last_message_ < kSpinDuration);
  }
  SpinMode mode() const { return mode_; }

 private:
  const SpinMode mode_;
  const bool spins_;
  base::TimePoint last_message_{base::Duration::min() / 2};
};

unsigned AllowedCpus();  // By sched_getaffinity; at least 1.

}  // namespace tier::session
