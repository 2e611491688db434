// CompletionSignal: one eventfd that says "something finished" to a thread asleep in epoll. io_uring, the I/O threads
// and the checksum workers all ring it; its count is not used.
//
// Signal: any thread. Clear: the engine thread.
#pragma once

#include <cstdint>

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

 private:
  proto::FileDescriptor fd_;
};

}  // namespace tier::storage
