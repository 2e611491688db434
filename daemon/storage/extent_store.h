// ExtentStore: which pages of which device are free, live, pending or quarantined. Pure bookkeeping over one BlockPool
// a device; the bytes move through TransferPort.
//
// Invariant, per device: free + live + pending + quarantined == capacity. Engine thread only.
//
// Extents are striped: one device takes kStripePages, then the next one does, so that neighbours can still become one
// request. Extents are write-once: an update allocates new ones, commits, then frees the old. An extent named by the
// last synced index must not be reused before a later synced commit drops it: FreeAfterSync parks it until OnSynced().
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/storage/extent.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint32_t kStripePages = 2 * kPagesPerBlock;  // 4 MiB: one merged request.
inline constexpr size_t kSyncsInflightMax = 1024;

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
  // A synced commit begins: what is pending now, it drops. Commits may overlap but end in the order they began.
  void OnSyncStarted();
  void OnSynced();      // Every extent pending before this commit began becomes free (all, if no start was told).
  void OnSyncFailed();  // The oldest commit under way dropped nothing; its extents wait for the next one.
  void Quarantine(Extent extent);  // live → quarantined: a device error was seen there; never handed out again.
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
  Device& CheckedDevice(Extent extent);
  const Device& CheckedDevice(uint16_t device) const;
  void ReleaseOldestPending(size_t count);

  std::vector<Device> devices_;
  std::vector<Extent> pending_;          // In the order they were freed.
  std::vector<size_t> sync_boundaries_;  // For each commit under way: how many of pending_ it drops. Ascending.
  uint16_t next_device_ = 0;             // Takes the next extent …
  uint32_t stripe_pages_left_ = 0;       // … until it has taken this many more pages.
};

}  // namespace tier::storage
