// Mutex, MutexLock, MutexUnlock and CondVar exclude, give up and hand over the lock as their names say. What clang
// finds about their users is tested in tests/style/test_thread_safety.py.
#include "proto/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tier {
namespace {

// Whether another thread could have the mutex now. A thread of its own: a mutex is not asked by its own holder.
bool IsFree(Mutex& mutex) {
  bool taken = false;
  std::thread other([&] {
    if (!mutex.TryLock()) return;
    taken = true;
    mutex.Unlock();
  });
  other.join();
  return taken;
}

TEST(MutexLock, HoldsTheMutexUntilTheEndOfItsScope) {
  Mutex mutex;
  EXPECT_TRUE(IsFree(mutex));
  {
    const MutexLock lock(mutex);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(MutexLock, TakesOverALockedMutex) {
  Mutex mutex;
  mutex.Lock();
  {
    const MutexLock lock(mutex, std::adopt_lock);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(MutexUnlock, FreesTheMutexUntilTheEndOfItsScope) {
  Mutex mutex;
  const MutexLock lock(mutex);
  {
    const MutexUnlock unlocked(mutex);
    EXPECT_TRUE(IsFree(mutex));
  }
  EXPECT_FALSE(IsFree(mutex));
}

TEST(Mutex, TryLockRefusesAHeldMutex) {
  Mutex mutex;
  if (!mutex.TryLock()) FAIL() << "nobody holds it";
  EXPECT_FALSE(IsFree(mutex));
  mutex.Unlock();
  EXPECT_TRUE(IsFree(mutex));
}

TEST(CondVar, WaitGivesTheMutexUpAndHoldsItAgainAfterwards) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  bool seen_locked = false;
  mutex.Lock();
  std::thread opener([&] {
    const MutexLock lock(mutex);  // Only the wait below lets this thread in.
    open = true;
    changed.NotifyOne();
  });
  while (!open) changed.Wait(mutex);
  seen_locked = !IsFree(mutex);
  mutex.Unlock();
  opener.join();
  EXPECT_TRUE(seen_locked);
}

TEST(CondVar, WaitUntilEndsAtItsDeadlineHoldingTheMutex) {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  EXPECT_FALSE(changed.WaitUntil(mutex, std::chrono::steady_clock::now()));
  EXPECT_FALSE(IsFree(mutex));
}

TEST(CondVar, WaitUntilTheLatestTimeWaitsForTheNotification) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  mutex.Lock();
  std::thread opener([&] {
    const MutexLock lock(mutex);
    open = true;
    changed.NotifyOne();
  });
  bool in_time = true;
  while (!open) in_time = changed.WaitUntil(mutex, std::chrono::steady_clock::time_point::max());
  mutex.Unlock();
  opener.join();
  EXPECT_TRUE(in_time);
}

TEST(CondVar, NotifyAllWakesEveryWaiter) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  int woken = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      const MutexLock lock(mutex);
      while (!open) changed.Wait(mutex);
      ++woken;
    });
  }
  {
    const MutexLock lock(mutex);
    open = true;
  }
  changed.NotifyAll();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 3);
}

}  // namespace
}  // namespace tier
