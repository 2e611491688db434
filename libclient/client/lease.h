// Lease: the client's handle on a granted byte range, and the slab that leases come from.
//
// A lease counts as a user of its session: the session's memory outlives it, even after tier_close. Entries of the slab
// are reused, their lists keep their capacity: granting allocates nothing in steady state.
// Threads: a lease may be used by several threads as long as none of them ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "libclient/client/stitch_cache.h"
#include "proto/mutex.h"

namespace tier::client {

class Session;

struct Lease {
  Session* session = nullptr;
  uint64_t id = 0;  // The daemon's.
  uint64_t tensor = 0;
  uint64_t offset = 0;  // In the tensor.
  uint64_t length = 0;
  std::atomic<bool> open{false};
  bool release_can_wait = false;  // A read lease that no other session may wait for (proto/ring.h).
  std::vector<Run> runs;          // Where the bytes lie; neighbours are joined.
  size_t scattered_runs = 0;      // Of them, if they are no range of addresses and have no view yet.
  std::byte* address = nullptr;   // The contiguous bytes, once known; stitch_mutex_ of the session while null.
  StitchCache::View* view = nullptr;
};

class LeaseSlab {
 public:
  // Fills `leases`; each is closed and keeps only its capacity.
  void Take(std::span<Lease*> leases);
  void Give(std::span<Lease* const> leases);
  uint64_t open_count() const;

 private:
  mutable Mutex mutex_;
  std::deque<Lease> storage_ TIER_GUARDED_BY(mutex_);  // Addresses are stable.
  std::vector<Lease*> free_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::client
