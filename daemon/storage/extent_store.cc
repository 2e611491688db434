// Books of the pages on SSD: counters beside one BlockPool a device, and the extents that become free when the turn
// ends.
#include "daemon/storage/extent_store.h"

#include <algorithm>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::storage {

using base::FormatBytes;

ExtentStore::Device& ExtentStore::CheckedDevice(Extent extent) {
  TIER_CHECK(extent.device < devices_.size(), "device {} of {}", extent.device, devices_.size());
  Device& device = devices_[extent.device];
  TIER_CHECK(extent.run.pages != 0 && device.live_pages >= extent.run.pages, "extent of {} pages, {} live on device {}",
             extent.run.pages, device.live_pages, extent.device);
  return device;
}

const ExtentStore::Device& ExtentStore::CheckedDevice(uint16_t device) const {
  TIER_CHECK(device < devices_.size(), "device {} of {}", device, devices_.size());
  return devices_[device];
}

uint16_t ExtentStore::AddDevice(uint32_t blocks) {
  TIER_CHECK(blocks != 0 && devices_.size() < UINT16_MAX, "{} blocks, {} devices", blocks, devices_.size());
  Device& device = devices_.emplace_back();
  device.pool.AddRegion(0, blocks, base::RegionUse::kSlotsFirst);
  device.capacity_pages = uint64_t{blocks} * kPagesPerBlock;
  return static_cast<uint16_t>(devices_.size() - 1);
}

Result<Extent> ExtentStore::Allocate(uint32_t pages) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "{} pages", pages);
  for (size_t tried = 0; tried < devices_.size(); ++tried) {
    if (stripe_pages_left_ == 0) {
      next_device_ = static_cast<uint16_t>((next_device_ + 1u) % devices_.size());
      stripe_pages_left_ = kStripePages;
    }
    Device& device = devices_[next_device_];
    const base::PageRun run = device.draining ? base::PageRun{} : device.pool.TryAllocateRun(pages);
    if (run) {
      TIER_CHECK(run.pages == pages, "asked {} got {}", pages, run.pages);
      device.live_pages += pages;
      stripe_pages_left_ -= std::min(pages, stripe_pages_left_);
      return Extent{.run = run, .device = next_device_};
    }
    stripe_pages_left_ = 0;
  }
  if (devices_.empty()) return Fail(Code::kNoSpace, "no SSD device is configured: name one in ssd.devices");
  const DeviceSpace sum = usable();
  return Fail(
      Code::kNoSpace,
      fmt::format("the SSD tier cannot hold {} in one run: {} of {} are free, {} live, {} about to become free, "
                  "{} quarantined{}; free tensors, or restart tierd with one more device in ssd.devices",
                  FormatBytes(pages * kPageSize), FormatBytes(sum.free), FormatBytes(sum.capacity),
                  FormatBytes(sum.live), FormatBytes(sum.pending), FormatBytes(sum.quarantined), DrainNote()));
}

Status ExtentStore::Take(Extent extent) {
  const base::PageRun run = extent.run;
  const bool shaped = run.pages != 0 && run.pages <= kPagesPerBlock && run.page + run.pages <= kPagesPerBlock;
  if (extent.device >= devices_.size() || !shaped || !devices_[extent.device].pool.TryTake(run)) {
    return Fail(Code::kCorrupt, fmt::format("a manifest names device {} block {} page {} + {}, which overlaps another "
                                            "extent or lies outside the device",
                                            extent.device, run.block, run.page, run.pages));
  }
  devices_[extent.device].live_pages += run.pages;
  return {};
}

void ExtentStore::Free(Extent extent) {
  Device& device = CheckedDevice(extent);
  device.pool.Free(extent.run);
  device.live_pages -= extent.run.pages;
}

void ExtentStore::FreeAtTurnEnd(Extent extent) {
  Device& device = CheckedDevice(extent);
  device.live_pages -= extent.run.pages;
  device.pending_pages += extent.run.pages;
  pending_.push_back(extent);
}

void ExtentStore::OnTurnEnded() {
  for (const Extent& extent : pending_) {
    Device& device = devices_[extent.device];
    TIER_CHECK(device.pending_pages >= extent.run.pages, "{} pending pages, extent of {}", device.pending_pages,
               extent.run.pages);
    device.pool.Free(extent.run);
    device.pending_pages -= extent.run.pages;
  }
  pending_.clear();
}

void ExtentStore::Quarantine(Extent extent) {
  Device& device = CheckedDevice(extent);
  device.live_pages -= extent.run.pages;
  device.quarantined_pages += extent.run.pages;
}

void ExtentStore::SetDraining(uint16_t device, bool draining) {
  TIER_CHECK(device < devices_.size(), "device {} of {}", device, devices_.size());
  devices_[device].draining = draining;
}

bool ExtentStore::HasRoom(uint64_t bytes) const {
  uint64_t pages = 0;
  for (const Device& device : devices_) {
    if (!device.draining) pages += device.pool.free_pages() + device.pending_pages;
  }
  return PagesFor(bytes) <= pages;
}

bool ExtentStore::RoomComes() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const Device& device) { return !device.draining && device.pending_pages != 0; });
}

DeviceSpace ExtentStore::space(uint16_t index) const {
  const Device& device = CheckedDevice(index);
  return {.capacity = device.capacity_pages * kPageSize,
          .free = device.pool.free_pages() * kPageSize,
          .live = device.live_pages * kPageSize,
          .pending = device.pending_pages * kPageSize,
          .quarantined = device.quarantined_pages * kPageSize};
}

DeviceSpace ExtentStore::total() const { return Sum(true); }

DeviceSpace ExtentStore::usable() const { return Sum(false); }

std::string ExtentStore::DrainNote() const {
  const auto count = std::count_if(devices_.begin(), devices_.end(), [](const Device& d) { return d.draining; });
  if (count == 0) return {};
  return fmt::format(
      "; {} of {} {} draining and {} nothing", count == 1 ? "1 device" : fmt::format("{} devices", count),
      FormatBytes(total().capacity - usable().capacity), count == 1 ? "is" : "are", count == 1 ? "takes" : "take");
}

DeviceSpace ExtentStore::Sum(bool with_draining) const {
  DeviceSpace sum;
  for (uint16_t i = 0; i < device_count(); ++i) {
    if (devices_[i].draining && !with_draining) continue;
    const DeviceSpace one = space(i);
    sum.capacity += one.capacity;
    sum.free += one.free;
    sum.live += one.live;
    sum.pending += one.pending;
    sum.quarantined += one.quarantined;
  }
  return sum;
}

void ExtentStore::CheckInvariants() const {
  std::vector<uint64_t> pending(devices_.size());
  for (const Extent& extent : pending_) pending[extent.device] += extent.run.pages;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    device.pool.CheckInvariants();
    const uint64_t used = device.live_pages + device.pending_pages + device.quarantined_pages;
    TIER_CHECK(device.pool.used_pages() == used, "device {}: pool says {} used, live {} + pending {} + quarantined {}",
               i, device.pool.used_pages(), device.live_pages, device.pending_pages, device.quarantined_pages);
    TIER_CHECK(device.pool.free_pages() + used == device.capacity_pages, "device {}: free {} + used {} of {}", i,
               device.pool.free_pages(), used, device.capacity_pages);
    TIER_CHECK(pending[i] == device.pending_pages, "device {}: listed {} pending {}", i, pending[i],
               device.pending_pages);
  }
}

}  // namespace tier::storage
