// Mailbox: closures from other threads (sockets, gRPC, metrics) to the engine thread, which runs them in order.
//
// The idea: posters append under a mutex held for a few instructions; only the post that finds the box empty writes the
// eventfd, outside the lock. The engine sleeps on wake_fd(), or polls empty() while it spins.
//
// TryPost: any thread. Drain, ClearWake: the engine thread. Invariant: closures waiting <= capacity.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/mapping.h"
#include "proto/mutex.h"

namespace tier::base {

class Mailbox {
 public:
  using Closure = std::move_only_function<void()>;
  static constexpr size_t kClosuresMax = 65536;

  // CHECK-fails when no eventfd is to be had (at start, before anything is promised).
  explicit Mailbox(size_t capacity = kClosuresMax);

  // False when the box is full: the caller refuses what it was asked for, or tries later.
  [[nodiscard]] bool TryPost(Closure closure);
  // Runs what had been posted when it was called, oldest first; what those closures post waits for the next call.
  // Returns how many ran.
  size_t Drain();
  // Makes wake_fd() unreadable. A post may still write it after a Drain ran its closure: it would stay readable without
  // a closure, and the engine would never sleep. The engine looks at empty() behind this. Engine thread.
  void ClearWake();

  int wake_fd() const { return wake_.get(); }  // Readable while something may wait; stays owned here.
  bool empty() const { return waiting_.load(std::memory_order_acquire) == 0; }
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }  // Since start.

 private:
  const size_t capacity_;
  proto::FileDescriptor wake_;
  Mutex mutex_;
  std::vector<Closure> posted_ TIER_GUARDED_BY(mutex_);
  std::vector<Closure> running_;  // Engine thread only.
  std::atomic<size_t> waiting_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace tier::base
