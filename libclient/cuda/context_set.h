// ContextSet: the CUDA contexts the shim works in. It finds them (current on the thread, that of a pointer or stream,
// a device's active primary one) and never makes one; primary contexts it uses are retained until the set is destroyed,
// so that they outlast registrations and streams. Owns one non-blocking stream per context.
//
// Thread-safe. No driver call that waits for the device is made under its lock.
#pragma once

#include <map>

#include "libclient/cuda/driver.h"
#include "proto/mutex.h"

namespace tier::cuda {

class ContextSet {
 public:
  static constexpr size_t kDevicesMax = 64;  // Primary contexts held, and own streams.

  explicit ContextSet(const Driver& driver) : driver_(driver) {}
  ~ContextSet();
  ContextSet(const ContextSet&) = delete;
  ContextSet& operator=(const ContextSet&) = delete;

  // The thread's current context, else that of the first device whose primary context is active, else null.
  Result<driver::Context> AnyActive();
  // The context of a device pointer; of its device where it belongs to none (pool and virtual-memory allocations).
  Result<driver::Context> OfPointer(const void* device_pointer);
  // The context of a stream; `device_pointer` decides for default streams.
  Result<driver::Context> OfStream(driver::Stream stream, const void* device_pointer);
  Result<driver::Stream> OwnStream(driver::Context context);

  // In a forked child: drops everything without a driver call. Takes no lock: a thread that does not exist here may
  // have held it when the process forked.
  void Abandon() TIER_UNCHECKED_LOCKING;

 private:
  // Retains the primary context of `device` once, if it is active; null if it is not.
  Result<driver::Context> HoldPrimary(driver::Device device);
  // Retains `context`, which is current, if it is the primary one of its device.
  Status HoldCurrent(driver::Context context);

  const Driver& driver_;
  Mutex mutex_;
  std::map<driver::Device, driver::Context> primaries_ TIER_GUARDED_BY(mutex_);  // Retained.
  std::map<driver::Context, driver::Stream> streams_ TIER_GUARDED_BY(mutex_);    // Owned.
};

}  // namespace tier::cuda
