// The two futex calls on words that lie in memory shared between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <optional>

namespace tier::client {

// Returns when woken, when *word != expected, after `timeout`, or for no reason (a signal): the caller looks again.
// Without a timeout the kernel sets no timer, which costs as much as the call itself on a virtual machine.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, std::optional<std::chrono::nanoseconds> timeout) {
  timespec time{};
  if (timeout) time = {timeout->count() / 1'000'000'000, timeout->count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout ? &time : nullptr, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tier::client
