// PinnedWindows: the windows that are registered with CUDA. A window is registered when a device copy first needs it,
// and unregistered before it goes back to the daemon, because memory must not change beneath a registration.
//
// Threads: any. Invariant: a window in `pinned_` is mapped.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "libclient/client/lease.h"
#include "libclient/client/window_map.h"
#include "libclient/cuda/gpu.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::client {

class PinnedWindows {
 public:
  explicit PinnedWindows(const WindowMap& windows) : windows_(windows) {}

  // Registers the windows of these runs; does nothing while the process has no CUDA context. A refusal of the driver
  // comes back with its error name; copies then still work, but slower.
  Status Pin(cuda::Gpu& gpu, std::span<const Run> runs);
  Status Unpin(uint32_t window);
  // Unregisters all windows, for the end of a session.
  void UnpinAll();
  uint64_t count() const;

 private:
  const WindowMap& windows_;
  mutable Mutex mutex_;
  std::set<uint32_t> pinned_ TIER_GUARDED_BY(mutex_);
  // The Gpu that pinned them; null until the first device pointer was seen.
  cuda::Gpu* gpu_ TIER_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace tier::client
