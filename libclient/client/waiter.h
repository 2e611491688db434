// Waiter: how a channel sleeps and reads the clock. The process's own sleeps on the kernel's futex; that of a test lets
// the peer run instead, so that one thread can drive both ends of a channel.
//
// Threads: any. The words lie in memory shared with the daemon.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tier::client {

using Clock = std::chrono::steady_clock;

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual Clock::time_point Now() = 0;
  // Returns when woken, when *word != expected, at the deadline (max(): none), or without a cause (a signal): the
  // caller checks again.
  virtual void Sleep(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline) = 0;
  // Wakes every thread that sleeps on the word.
  virtual void WakeAll(std::atomic<uint32_t>& word) = 0;

  // The waiter of the process: the futex and the steady clock.
  static Waiter& OfProcess();
};

}  // namespace tier::client
