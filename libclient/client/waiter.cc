#include "libclient/client/waiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace tier::client {
namespace {

class FutexWaiter final : public Waiter {
 public:
  Clock::time_point Now() override { return Clock::now(); }

  // Without a deadline the kernel sets no timer, which costs as much as the call itself on a virtual machine.
  void Sleep(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline) override {
    const bool timed = deadline != Clock::time_point::max();
    timespec time{};
    if (timed) {
      const std::chrono::nanoseconds left = std::max(deadline - Clock::now(), Clock::duration::zero());
      time = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    }
    ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, timed ? &time : nullptr, nullptr, 0);
  }

  void WakeAll(std::atomic<uint32_t>& word) override {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
};

constinit FutexWaiter g_futex_waiter;

}  // namespace

Waiter& Waiter::OfProcess() { return g_futex_waiter; }

}  // namespace tier::client
