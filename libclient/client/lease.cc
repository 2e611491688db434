#include "libclient/client/lease.h"

namespace tier::client {

void LeaseSlab::Take(std::span<Lease*> leases) {
  const MutexLock lock(mutex_);
  for (Lease*& lease : leases) {
    if (free_.empty()) {
      lease = &storage_.emplace_back();
      if (free_.capacity() < storage_.size()) free_.reserve(2 * storage_.size());  // Give must not allocate.
    } else {
      lease = free_.back();
      free_.pop_back();
    }
  }
}

void LeaseSlab::Give(std::span<Lease* const> leases) {
  const MutexLock lock(mutex_);
  for (Lease* lease : leases) {
    lease->runs.clear();
    lease->address = nullptr;
    lease->view = nullptr;
    free_.push_back(lease);
  }
}

uint64_t LeaseSlab::open_count() const {
  const MutexLock lock(mutex_);
  return storage_.size() - free_.size();
}

}  // namespace tier::client
