// WithoutMemoryLock: for as long as it lives, this thread may lock as little memory as an ordinary user's daemon.
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/units.h"

namespace tier::storage::testing {

// Without CAP_IPC_LOCK, which is this thread's, and with 1 MiB of lockable memory, which is the process's limit.
class WithoutMemoryLock {
 public:
  WithoutMemoryLock() {
    ::getrlimit(RLIMIT_MEMLOCK, &limit_before_);
    const rlimit small{.rlim_cur = kMiB, .rlim_max = limit_before_.rlim_max};
    ::setrlimit(RLIMIT_MEMLOCK, &small);
    ::syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct fewer[2] = {before_[0], before_[1]};
    fewer[0].effective &= ~(1u << CAP_IPC_LOCK);
    ::syscall(SYS_capset, &header_, fewer);
  }
  ~WithoutMemoryLock() {
    ::syscall(SYS_capset, &header_, before_);
    ::setrlimit(RLIMIT_MEMLOCK, &limit_before_);
  }

 private:
  rlimit limit_before_{};
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2]{};
};

}  // namespace tier::storage::testing
