// WindowRegistry: which ranges of this process's memory are pinned for CUDA, and where a copy must be split, because
// one copy may not span two registrations. Pure bookkeeping, thread-safe.
//
// Invariant: ranges are disjoint; count() ≤ kRegisteredWindowsMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::cuda {

struct RegisteredWindow {
  uint64_t size_bytes = 0;
  bool own = false;         // Registered by the shim; false: the program had registered it itself.
  void* context = nullptr;  // CUcontext it was registered in; only with `own`.
};

class WindowRegistry {
 public:
  // True: known already, exactly so. INVALID if the range overlaps another one otherwise, or is empty or wraps around;
  // NO_MEMORY if the table is full.
  Result<bool> Known(const void* address, uint64_t size_bytes) const;
  // REQUIRES: Known() returned false, and no window was added since (callers hold a lock over both).
  void Add(const void* address, const RegisteredWindow& window);
  std::optional<RegisteredWindow> Find(const void* address) const;
  void Remove(const void* address);
  uint64_t own_count() const;
  std::vector<void*> OwnAddresses() const;

  // How many of the `bytes` bytes from `host` on lie on one side of all borders: at least 1 for bytes > 0.
  size_t PartBytes(const void* host, size_t bytes) const;

 private:
  using Windows = std::map<uintptr_t, RegisteredWindow>;
  mutable Mutex mutex_;
  Windows windows_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::cuda
