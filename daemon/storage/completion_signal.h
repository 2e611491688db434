// CompletionSignal: an eventfd that says "something finished, or is to be done" to one thread, which sleeps in epoll,
// in an io_uring or in Wait. Its count is not used.
//
// Signal: any thread. Clear, Wait: the thread that sleeps.
#pragma once

#include <cstdint>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "proto/mapping.h"

namespace tier::storage {

class CompletionSignal {
 public:
  CompletionSignal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TIER_CHECK(static_cast<bool>(fd_), "eventfd: errno {}", errno);
  }
  int fd() const { return fd_.get(); }
  void Signal() const {
    const uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof one);  // Refused only at 2^64 - 2 unread signals: readable all the same.
  }
  void Clear() const {
    uint64_t count = 0;
    (void)!::read(fd_.get(), &count, sizeof count);  // EAGAIN: nothing was signalled.
  }
  void Wait() const {  // Until it is signalled; then it is cleared. May return without a reason.
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&wait, 1, -1);
    Clear();
  }

 private:
  proto::FileDescriptor fd_;
};

}  // namespace tier::storage
