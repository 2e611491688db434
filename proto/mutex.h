// Mutex, MutexLock, MutexUnlock, CondVar: the standard ones with clang's thread-safety attributes, for daemon and
// libclient alike.
//
// A field says which lock guards it (TIER_GUARDED_BY), a function which locks its caller holds (TIER_REQUIRES) or must
// not hold (TIER_EXCLUDES). `tools/dev check` has clang prove all of it over every source that sees this header; for
// g++ the attributes are empty and the classes cost what the standard ones cost. A wait for a condition is an explicit
// loop, so that the proof covers the condition too:
//   MutexLock lock(mutex_);
//   while (queue_.empty()) wake_.Wait(mutex_);
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TIER_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define TIER_THREAD_ATTRIBUTE(attribute)
#endif
#define TIER_GUARDED_BY(mutex) TIER_THREAD_ATTRIBUTE(guarded_by(mutex))
#define TIER_REQUIRES(...) TIER_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TIER_EXCLUDES(...) TIER_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// For the few functions whose locking clang cannot follow; the reason stands beside each.
#define TIER_UNCHECKED_LOCKING TIER_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace tier {

class TIER_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() TIER_THREAD_ATTRIBUTE(acquire_capability()) { native_.lock(); }
  void Unlock() TIER_THREAD_ATTRIBUTE(release_capability()) { native_.unlock(); }
  bool TryLock() TIER_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return native_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex native_;
};

// Holds a mutex until the end of the scope.
class TIER_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TIER_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.Lock(); }
  // Takes over a mutex that the caller has locked already.
  MutexLock(Mutex& mutex, std::adopt_lock_t) TIER_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() TIER_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// The reverse: gives a held mutex free until the end of the scope.
class TIER_THREAD_ATTRIBUTE(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) TIER_THREAD_ATTRIBUTE(release_capability(mutex)) : mutex_(mutex) {
    mutex_.Unlock();
  }
  ~MutexUnlock() TIER_THREAD_ATTRIBUTE(release_capability()) { mutex_.Lock(); }  // Of a scope: undoes the constructor.
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes may be spurious: every wait is in a loop that looks at its condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) TIER_REQUIRES(mutex) {
    std::unique_lock lock(mutex.native_, std::adopt_lock);
    native_.wait(lock);
    lock.release();
  }
  // False when the deadline has passed. time_point::max() is no deadline.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) TIER_REQUIRES(mutex) {
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      Wait(mutex);
      return true;
    }
    std::unique_lock lock(mutex.native_, std::adopt_lock);
    const auto status = native_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { native_.notify_one(); }
  void NotifyAll() { native_.notify_all(); }

 private:
  std::condition_variable native_;
};

}  // namespace tier
