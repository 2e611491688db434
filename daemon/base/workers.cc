// A bounded ring of tasks under one mutex: tasks are long (µs to ms) beside the lock (ns), so nothing cleverer pays.
#include "daemon/base/workers.h"

#include <pthread.h>

#include <csignal>

#include <string>
#include <utility>

#include "daemon/base/check.h"

namespace tier::base {
namespace {

// Signals meant for the process go to the thread that waits for them; faults stay with the thread that made them.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Workers::Workers(unsigned threads, std::string_view name) : ring_(kTasksQueuedMax) {
  TIER_CHECK(threads >= 1, "threads {}", threads);
  const BlockSignals inherited_by_the_new_threads;
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    const std::string full = fmt::format("{}-{}", name.substr(0, 11), i);
    pthread_setname_np(threads_.back().native_handle(), full.substr(0, 15).c_str());
  }
}

Workers::~Workers() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::TryPost(Task task) {
  {
    const MutexLock lock(mutex_);
    if (queued_ == kTasksQueuedMax) {
      ++refused_;
      return false;
    }
    ring_[(head_ + queued_) % kTasksQueuedMax] = std::move(task);
    ++queued_;
  }
  wake_.NotifyOne();
  return true;
}

void Workers::Run() {
  const MutexLock lock(mutex_);
  for (;;) {
    // A running task may still post: the last one out turns off the light.
    while (queued_ == 0 && !(stopping_ && running_ == 0)) wake_.Wait(mutex_);
    if (queued_ == 0) return;
    Task task = std::exchange(ring_[head_], Task());
    head_ = (head_ + 1) % kTasksQueuedMax;
    --queued_;
    ++running_;
    {
      const MutexUnlock unlocked(mutex_);
      task();
      task = nullptr;  // What it owns ends outside the lock.
    }
    --running_;
    if (stopping_ && running_ == 0) wake_.NotifyAll();
  }
}

size_t Workers::queued() const {
  const MutexLock lock(mutex_);
  return queued_;
}

uint64_t Workers::refused() const {
  const MutexLock lock(mutex_);
  return refused_;
}

}  // namespace tier::base
