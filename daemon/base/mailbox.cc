#include "daemon/base/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "daemon/base/check.h"

namespace tier::base {

Mailbox::Mailbox(size_t capacity) : capacity_(capacity), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TIER_CHECK(capacity_ >= 1 && wake_, "capacity {} errno {}", capacity_, errno);
}

bool Mailbox::TryPost(Closure closure) {
  bool was_empty = false;
  {
    const MutexLock lock(mutex_);
    if (posted_.size() == capacity_) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    was_empty = posted_.empty();
    posted_.push_back(std::move(closure));
    waiting_.store(posted_.size(), std::memory_order_release);
  }
  if (was_empty) {
    const uint64_t one = 1;
    // EAGAIN would mean a counter near 2^64: it is readable then, which is all that is wanted.
    (void)!::write(wake_.get(), &one, sizeof(one));
  }
  return true;
}

void Mailbox::ClearWake() {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof(count));
}

size_t Mailbox::Drain() {
  // First the eventfd, then the queue: a post in between is run now and wakes once more for nothing. The other way
  // round its wake-up would be lost.
  ClearWake();
  {
    const MutexLock lock(mutex_);
    running_.swap(posted_);
    waiting_.store(0, std::memory_order_release);
  }
  const size_t ran = running_.size();
  for (Closure& closure : running_) std::exchange(closure, nullptr)();
  running_.clear();
  return ran;
}

}  // namespace tier::base
