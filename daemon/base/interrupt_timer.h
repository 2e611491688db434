// InterruptTimer: interrupts whatever system call its thread waits in, by a signal to that thread alone with a handler
// that does nothing. For calls that a stranger can make long: the last close of a socket with SO_LINGER is one, and it
// has no other limit. Made, started and stopped by the thread that it interrupts.
#pragma once

#include <chrono>
#include <ctime>

namespace tier::base {

// The first signal comes after this long, and then another each time it has passed again.
inline constexpr auto kInterruptInterval = std::chrono::milliseconds(1);

class InterruptTimer {
 public:
  // Where the kernel gives no timer (a limit of the machine) Start and Stop do nothing.
  InterruptTimer();
  ~InterruptTimer();
  InterruptTimer(const InterruptTimer&) = delete;
  InterruptTimer& operator=(const InterruptTimer&) = delete;

  void Start();
  void Stop();

 private:
  void Set(std::chrono::nanoseconds interval);

  timer_t timer_{};
  bool made_ = false;
};

}  // namespace tier::base
