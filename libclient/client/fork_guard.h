// ForkGuard: knows when this process is a forked child, in which every client is dead.
//
// The idea: a counter is raised in the child of every fork; a session keeps the value of its start. The child closes
// its copies of the sockets at once, so that the parent's death is a hang-up whatever its children do.
// Threads: any. A child touches none of the parent's locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/mutex.h"

namespace tier::client {

class ForkGuard {
 public:
  static constexpr uint32_t kDescriptorsMax = 8192;  // Of each client of this process two, and those of StitchCache.

  // Forks between this process and the one that started: equal values mean the same process.
  static uint32_t Generation() { return generation_.load(std::memory_order_relaxed); }

  // From now on a child closes this descriptor at once. Call Release when the parent is about to close it.
  static void CloseInChild(int fd);
  static void Release(int fd);

 private:
  static void Install();
  // The lock is taken before a fork and given back on both sides of it: no scope covers that.
  static void BeforeFork() TIER_UNCHECKED_LOCKING;
  static void AfterForkInParent() TIER_UNCHECKED_LOCKING;
  static void AfterForkInChild() TIER_UNCHECKED_LOCKING;

  static std::atomic<uint32_t> generation_;
};

}  // namespace tier::client
