// ExtentStore: which pages of which device are free, live, pending or quarantined. Pure bookkeeping over one BlockPool
// a device; the bytes move through TransferPort.
//
// Invariant, per device: free + live + pending + quarantined == capacity. Engine thread only.
//
// Extents are striped: one device takes kStripePages, then the next one does, so that neighbours can still become one
// request. Extents are write-once: an update allocates new ones, then frees the old. What held a tensor's bytes is not
// written again in the turn that frees it: FreeAtTurnEnd parks the extent until OnTurnEnded(). An extent that a
// manifest names is freed only after a synced commit has dropped the name (tiering/manifest_holds.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/storage/extent.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint32_t kStripePages = 2 * kPagesPerBlock;  // 4 MiB: one merged request.

struct DeviceSpace {  // Bytes.
  uint64_t capacity = 0;
  uint64_t free = 0;
  uint64_t live = 0;
  uint64_t pending = 0;
  uint64_t quarantined = 0;
};

class ExtentStore {
 public:
  // Devices are added once, at start. `blocks` = 2 MiB blocks of the data area.
  uint16_t AddDevice(uint32_t blocks);
  // One extent of 1 … 512 pages, near the last one allocated where possible so that a stream stays sequential.
  // NO_SPACE with figures when no device can hold it. A draining device takes none.
  Result<Extent> Allocate(uint32_t pages);
  // Takes an extent that a manifest names. CORRUPT if it overlaps another or lies outside the device.
  Status Take(Extent extent);
  // Reusable at once. REQUIRES: live, no I/O in flight on it, and no piece's bytes were ever complete in it.
  void Free(Extent extent);
  void FreeAtTurnEnd(Extent extent);  // live → pending. REQUIRES: no I/O in flight on it.
  void OnTurnEnded();                 // All that is pending becomes free.
  void Quarantine(Extent extent);     // live → quarantined: a device error was seen there; never handed out again.
  void SetDraining(uint16_t device, bool draining);

  // Whether `bytes` more could be stored now or after this turn, were everything page-rounded.
  bool HasRoom(uint64_t bytes) const;
  // Whether the end of this turn frees something where extents are allocated.
  bool RoomComes() const;
  uint16_t device_count() const { return static_cast<uint16_t>(devices_.size()); }
  DeviceSpace space(uint16_t device) const;
  DeviceSpace total() const;
  DeviceSpace usable() const;  // Of the devices that take extents: without those that drain.
  // For a refusal's sentence: "; 1 device of 4 MiB is draining and takes nothing". Empty: none is.
  std::string DrainNote() const;
  void CheckInvariants() const;

 private:
  struct Device {
    base::BlockPool pool;
    uint64_t capacity_pages = 0;
    uint64_t live_pages = 0;
    uint64_t pending_pages = 0;
    uint64_t quarantined_pages = 0;
    bool draining = false;
  };
  Device& CheckedDevice(Extent extent);
  const Device& CheckedDevice(uint16_t device) const;
  DeviceSpace Sum(bool with_draining) const;

  std::vector<Device> devices_;
  std::vector<Extent> pending_;
  uint16_t next_device_ = 0;        // Takes the next extent …
  uint32_t stripe_pages_left_ = 0;  // … until it has taken this many more pages.
};

}  // namespace tier::storage
