// ExtentStore: which pages of which device are free, live, pending or quarantined. Pure bookkeeping over one BlockPool a
// device; the bytes move through TransferPort.
//
// Invariant, per device: free + live + pending + quarantined == capacity. Engine thread only.
//
// Extents are write-once: an update allocates new ones, commits, then frees the old. An extent named by the last synced
// index must not be reused before a later synced commit drops it: FreeAfterSync parks it until OnSynced().
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/storage/extent.h"
#include "proto/result.h"

namespace tier::storage {

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
  // Replays an extent out of an index. CORRUPT if it overlaps another or lies outside the device.
  Status Take(Extent extent);
  void Free(Extent extent);           // Reusable at once. REQUIRES: live, no I/O in flight on it.
  void FreeAfterSync(Extent extent);  // live → pending.
  void OnSynced();                    // Every extent pending before this commit began becomes free.
  void Quarantine(Extent extent);     // live → quarantined: a device error was seen there; never handed out again.
  void SetDraining(uint16_t device, bool draining);

  // Whether `bytes` more could be stored now, were everything page-rounded.
  bool HasRoom(uint64_t bytes) const;
  uint16_t device_count() const { return static_cast<uint16_t>(devices_.size()); }
  DeviceSpace space(uint16_t device) const;
  DeviceSpace total() const;
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
  std::vector<Device> devices_;
  std::vector<Extent> pending_;
  uint16_t next_device_ = 0;
};

}  // namespace tier::storage
