// A bounded ring of tasks under one mutex: tasks are long (µs to ms) beside the lock (ns), so nothing cleverer pays.
#include "daemon/base/workers.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "proto/start_thread.h"

namespace tier::base {

Workers::Workers() : ring_(kTasksQueuedMax) {}

Result<std::unique_ptr<Workers>> Workers::Start(unsigned threads, std::string_view name, proto::Urgency urgency) {
  TIER_CHECK(threads >= 1, "threads {}", threads);
  std::unique_ptr<Workers> workers(new Workers());
  workers->threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    // Signals meant for the process go to the thread that waits for them; faults stay with the thread that made them.
    auto thread = proto::StartThread(
        fmt::format("{}-{}", name.substr(0, 11), i), proto::BlockedSignals::kAsynchronous,
        [raw = workers.get()] { raw->Run(); }, urgency);
    if (!thread) return std::unexpected(std::move(thread.error()));
    workers->threads_.push_back(std::move(*thread));
  }
  return workers;
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
