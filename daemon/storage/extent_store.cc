// Books of the pages on SSD: counters beside one BlockPool a device, and the extents that become free when the turn
// ends.
#include "daemon/storage/extent_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/quarantine_record.h"

namespace tier::storage {

namespace {

void Add(const DeviceSpace& one, DeviceSpace* sum) {
  sum->capacity += one.capacity;
  sum->free += one.free;
  sum->live += one.live;
  sum->pending += one.pending;
  sum->doubtful += one.doubtful;
  sum->quarantined += one.quarantined;
}

bool IsWithinABlock(base::PageRun run) { return run.pages != 0 && uint32_t{run.page} + run.pages <= kPagesPerBlock; }

}  // namespace

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

ExtentStore::Device& ExtentStore::At(uint16_t device) {
  return const_cast<Device&>(std::as_const(*this).CheckedDevice(device));
}

uint16_t ExtentStore::AddDevice(uint32_t blocks) {
  TIER_CHECK(blocks != 0 && devices_.size() < UINT16_MAX, "{} blocks, {} devices", blocks, devices_.size());
  Device& device = devices_.emplace_back();
  device.pool.AddRegion(0, blocks, base::RegionUse::kSlotsFirst);
  device.capacity_pages = uint64_t{blocks} * kPagesPerBlock;
  return static_cast<uint16_t>(devices_.size() - 1);
}

bool ExtentStore::Takes(size_t index, uint32_t pages, LastBlock last) const {
  if (!devices_[index].open() || devices_[index].free_pages() < pages) return false;
  if (last == LastBlock::kTake) return true;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const uint64_t taken = i == index ? pages : 0;
    if (devices_[i].usable() && devices_[i].room_pages() >= kPagesPerBlock + taken) return true;
  }
  return false;
}

Result<Extent> ExtentStore::Allocate(uint32_t pages, LastBlock last) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "{} pages", pages);
  if (!closed_.empty()) return Fail(Code::kNoSpace, closed_);
  for (size_t tried = 0; tried < devices_.size(); ++tried) {
    if (stripe_pages_left_ == 0) {
      next_device_ = static_cast<uint16_t>((next_device_ + 1u) % devices_.size());
      stripe_pages_left_ = kStripePages;
    }
    Device& device = devices_[next_device_];
    const bool takes = Takes(next_device_, pages, last);
    const base::PageRun run = takes ? device.pool.TryAllocateRun(pages) : base::PageRun{};
    if (run) {
      TIER_CHECK(run.pages == pages, "asked {} got {}", pages, run.pages);
      device.live_pages += pages;
      stripe_pages_left_ -= std::min(pages, stripe_pages_left_);
      return Extent{.run = run, .device = next_device_};
    }
    stripe_pages_left_ = 0;
  }
  if (const Extent extent = Scatter(pages, last)) return extent;
  if (devices_.empty()) return Fail(Code::kNoSpace, "no SSD device is configured: name one in ssd.devices");
  for (Device& device : devices_) {  // Nothing else is left: places in doubt are tried again, from the next turn on.
    if (!device.open()) continue;
    FreeDoubtful(device);
    TryAsideAgain(device);
  }
  if (std::ranges::any_of(devices_, &Device::away) && std::ranges::none_of(devices_, &Device::usable)) {
    return Fail(Code::kIoError,
                fmt::format("no SSD device takes anything{}; see 'tierctl device list'", UnusableNote()));
  }
  const DeviceSpace sum = usable();
  return Fail(Code::kNoSpace,
              fmt::format("the SSD tier cannot hold {} more: {} of {} are free, {} live, {} about to become free, "
                          "{} quarantined{}{}; {}",
                          FormatBytes(pages * kPageSize), FormatBytes(sum.free), FormatBytes(sum.capacity),
                          FormatBytes(sum.live), FormatBytes(sum.pending), FormatBytes(sum.quarantined),
                          last == LastBlock::kKeep ? "; the last 2 MiB are kept for reads that need them" : "",
                          UnusableNote(), kRoomAdvice));
}

// No device has a run of that length: the longest ones of the first that has so many free pages.
Extent ExtentStore::Scatter(uint32_t pages, LastBlock last) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto index = static_cast<uint16_t>((next_device_ + i) % devices_.size());
    Device& device = devices_[index];
    if (!Takes(index, pages, last)) continue;
    if (device.pool.free_pages() < pages) device.cleared.EndAll(&device.pool);
    std::vector<base::PageRun> runs;
    for (uint32_t left = pages; left != 0; left -= runs.back().pages) {
      runs.push_back(device.pool.TryAllocateRun(std::min(left, device.pool.longest_hole())));
      TIER_CHECK(runs.back(), "{} pages of {} are left, the longest hole has {}", left, pages,
                 device.pool.longest_hole());
    }
    device.live_pages += pages;
    if (runs.size() == 1) return {.run = runs.front(), .device = index};  // In a block that is cleared no longer.
    device.scattered_bytes += pages * kPageSize;
    const base::PageRun first = runs.front();
    const bool fresh = device.scattered.try_emplace(FirstPage(first), std::move(runs)).second;
    TIER_CHECK(fresh, "two extents begin at device {} block {} page {}", index, first.block, first.page);
    return {.run = {.block = first.block, .page = first.page, .pages = static_cast<uint16_t>(pages)},
            .device = index,
            .scattered = true};
  }
  return {};
}

bool ExtentStore::WouldScatter(uint32_t pages) const {
  return closed_.empty() &&
         std::ranges::none_of(devices_,
                              [pages](const Device& d) {
                                return d.open() && (d.pool.free_block_count() != 0 || d.pool.longest_hole() >= pages);
                              }) &&
         std::ranges::any_of(devices_, [pages](const Device& d) { return d.open() && d.free_pages() >= pages; });
}

std::span<const base::PageRun> ExtentStore::RunsOf(const Extent& extent) const {
  if (!extent.scattered) return {&extent.run, 1};
  const Device& device = CheckedDevice(extent.device);
  const auto found = device.scattered.find(FirstPage(extent.run));
  TIER_CHECK(found != device.scattered.end(), "no scattered extent begins at device {} block {} page {}", extent.device,
             extent.run.block, extent.run.page);
  return found->second;
}

template <typename Visit>
void ExtentStore::TakeApart(const Extent& extent, Visit visit) {
  if (!extent.scattered) return visit(extent);
  const auto node = At(extent.device).scattered.extract(FirstPage(extent.run));
  TIER_CHECK(!node.empty(), "no scattered extent begins at device {} block {} page {}", extent.device, extent.run.block,
             extent.run.page);
  for (const base::PageRun run : node.mapped()) visit(Extent{.run = run, .device = extent.device});
}

Status ExtentStore::Take(Extent extent, std::span<const base::PageRun> runs) {
  const auto refused = [&extent] {
    return Fail(Code::kCorrupt, fmt::format("a manifest names device {} block {} page {} + {}, which overlaps another "
                                            "extent or lies outside the device",
                                            extent.device, extent.run.block, extent.run.page, extent.run.pages));
  };
  if (extent.device >= devices_.size() || runs.size() != (extent.scattered ? std::max(runs.size(), size_t{2}) : 1)) {
    return refused();
  }
  Device& device = devices_[extent.device];
  device.cleared.EndAll(&device.pool);
  size_t taken = 0;
  uint32_t pages = 0;
  for (; taken < runs.size() && IsWithinABlock(runs[taken]) && device.pool.TryTake(runs[taken]); ++taken) {
    pages += runs[taken].pages;
  }
  const bool whole = taken == runs.size() && pages == extent.run.pages && runs[0].block == extent.run.block &&
                     runs[0].page == extent.run.page;
  if (!whole) {
    for (const base::PageRun run : runs.first(taken)) device.pool.Free(run);
    return refused();
  }
  device.live_pages += pages;
  if (extent.scattered) device.scattered.try_emplace(FirstPage(extent.run), runs.begin(), runs.end());
  return {};
}

void ExtentStore::Free(Extent extent) {
  Device& device = CheckedDevice(extent);
  TakeApart(extent, [&device](const Extent& part) { device.cleared.GiveBack(part.run, &device.pool); });
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
    TakeApart(extent, [&device](const Extent& part) { device.cleared.GiveBack(part.run, &device.pool); });
    device.pending_pages -= extent.run.pages;
  }
  pending_.clear();
}

void ExtentStore::SetInDoubt(Extent extent, bool may_be_the_place, std::optional<uint64_t> failed_at) {
  if (CheckedDevice(extent).away) return FreeAtTurnEnd(extent);
  uint64_t at = 0;
  TakeApart(extent, [&](const Extent& part) {
    const uint64_t end = at + part.run.size_bytes();
    const bool failed = !extent.scattered || !failed_at || (at <= *failed_at && *failed_at < end);
    failed ? SetRunInDoubt(part, may_be_the_place) : FreeAtTurnEnd(part);
    at = end;
  });
}

void ExtentStore::SetRunInDoubt(const Extent& extent, bool may_be_the_place) {
  Device& device = CheckedDevice(extent);
  device.live_pages -= extent.run.pages;
  device.doubtful_pages += extent.run.pages;
  device.doubtful.push_back({extent, may_be_the_place});
}

// They may have been of pieces until this turn.
void ExtentStore::FreeDoubtful(Device& device) {
  for (const Doubtful& doubt : std::exchange(device.doubtful, {})) FreeDoubtful(device, doubt.extent);
}

void ExtentStore::FreeDoubtful(Device& device, const Extent& extent) {
  TIER_CHECK(device.doubtful_pages >= extent.run.pages, "extent of {} pages, {} in doubt on device {}",
             extent.run.pages, device.doubtful_pages, extent.device);
  device.doubtful_pages -= extent.run.pages;
  device.pending_pages += extent.run.pages;
  pending_.push_back(extent);
}

// What failed together lies close together: else it was the device, for a moment.
bool ExtentStore::IsOnePlace(const std::vector<Doubtful>& doubts) {
  uint64_t first = UINT64_MAX;
  uint64_t end = 0;
  for (const Doubtful& doubt : doubts) {
    first = std::min(first, doubt.extent.run.offset_bytes());
    end = std::max(end, doubt.extent.run.offset_bytes() + doubt.extent.run.size_bytes());
  }
  return doubts.empty() || end - first <= kStripePages * kPageSize;
}

void ExtentStore::EndDoubts(uint16_t index, Doubt doubt) {
  Device& device = At(index);
  if (doubt == Doubt::kOfDevice) {  // It explains what was put aside, too.
    for (const Extent& extent : std::exchange(device.aside, {})) FreeDoubtful(device, extent);
    return FreeDoubtful(device);
  }
  if (!IsOnePlace(device.doubtful)) return FreeDoubtful(device);
  for (const auto& [extent, may_be_the_place] : std::exchange(device.doubtful, {})) {
    if (!may_be_the_place) {
      FreeDoubtful(device, extent);
    } else if (device.tried_again.Erase(extent.run)) {
      device.doubtful_pages -= extent.run.pages;
      NoteQuarantined(device, extent.run);
    } else {
      device.aside.push_back(extent);
    }
  }
}

void ExtentStore::NoteQuarantined(Device& device, base::PageRun place) {
  device.quarantined_pages += place.pages;
  device.quarantine_changed = quarantine_changed_ = true;
  if (device.quarantined.size() < kQuarantinedPlacesMax) {
    device.quarantined.push_back(place);
  } else {
    device.unlisted_pages += place.pages;
  }
}

void ExtentStore::Quarantine(uint16_t index, base::PageRun place) {
  Device& device = At(index);
  const bool there = uint64_t{place.block} * kPagesPerBlock < device.capacity_pages && IsWithinABlock(place);
  if (there && device.pool.TryTake(place)) {
    const bool changed = std::exchange(device.quarantine_changed, false);
    NoteQuarantined(device, place);
    device.quarantine_changed = changed;  // It is written down.
    return;
  }
  device.quarantine_changed = quarantine_changed_ = true;
  if (!there || place.pages < 2) return;
  base::PageRun second = place;
  place.pages /= 2;
  second.page += place.pages;
  second.pages -= place.pages;
  Quarantine(index, place);
  Quarantine(index, second);
}

void ExtentStore::RetryQuarantined(uint16_t index) {
  Device& device = At(index);
  for (const base::PageRun place : std::exchange(device.quarantined, {})) {
    device.quarantined_pages -= place.pages;
    device.doubtful_pages += place.pages;
    device.aside.push_back({.run = place, .device = index});
    device.quarantine_changed = quarantine_changed_ = true;
  }
}

bool ExtentStore::IsFailing(uint16_t device) const {
  return CheckedDevice(device).quarantined.size() == kQuarantinedPlacesMax;
}

std::vector<uint16_t> ExtentStore::TakeQuarantineChanges() {
  std::vector<uint16_t> changed;
  for (uint16_t i = 0; i < device_count(); ++i) {
    if (std::exchange(devices_[i].quarantine_changed, false)) changed.push_back(i);
  }
  quarantine_changed_ = false;
  return changed;
}

void ExtentStore::TryAsideAgain(Device& device) {
  for (const Extent& extent : std::exchange(device.aside, {})) {
    FreeDoubtful(device, extent);
    device.tried_again.Add(extent.run);
  }
}

void ExtentStore::NoteWritten(Extent extent) {
  TriedPlaces& tried_again = At(extent.device).tried_again;
  if (tried_again.empty()) return;
  for (const base::PageRun run : RunsOf(extent)) (void)tried_again.Erase(run);  // Most writes are of other places.
}

bool ExtentStore::BeginClearing(uint16_t index, uint32_t block) {
  Device& device = At(index);
  return device.cleared.Begin(block, &device.pool);
}

void ExtentStore::EndClearing(uint16_t index, uint32_t block) {
  Device& device = At(index);
  device.cleared.End(block, &device.pool);
}

void ExtentStore::EndClearing(uint16_t index) {
  Device& device = At(index);
  device.cleared.EndAll(&device.pool);
}

void ExtentStore::SetDraining(uint16_t device, bool draining) { At(device).draining = draining; }
void ExtentStore::SetShut(uint16_t device, Shut shut) { At(device).shut = shut; }
void ExtentStore::SetAway(uint16_t device, bool away) { At(device).away = away; }

bool ExtentStore::HasRoom(uint64_t bytes) const {
  if (!closed_.empty()) return PagesFor(bytes) == 0;
  uint64_t pages = 0;
  for (const Device& device : devices_) {
    if (device.usable()) pages += device.room_pages();
  }
  return PagesFor(bytes) <= pages;
}

bool ExtentStore::HasBlock() const {
  return closed_.empty() &&
         std::ranges::any_of(devices_, [](const Device& d) { return d.usable() && d.room_pages() >= kPagesPerBlock; });
}

bool ExtentStore::RoomComes() const {
  return closed_.empty() &&
         std::ranges::any_of(devices_, [](const Device& d) { return d.open() && d.pending_pages != 0; });
}

bool ExtentStore::RoomBehindShut(uint32_t pages) const {
  return closed_.empty() && std::ranges::any_of(devices_, [pages](const Device& d) {
           return d.usable() && d.shut != Shut::kOpen && d.room_pages() >= pages;
         });
}

bool ExtentStore::RoomWhereWritesSucceed(uint32_t pages) const {
  return closed_.empty() && std::ranges::any_of(devices_, [pages](const Device& d) {
           return d.usable() && d.shut != Shut::kFailing && d.room_pages() >= pages;
         });
}

bool ExtentStore::AnyOpen() const { return closed_.empty() && std::ranges::any_of(devices_, &Device::open); }

bool ExtentStore::AnyShut() const {
  return closed_.empty() &&
         std::ranges::any_of(devices_, [](const Device& d) { return d.usable() && d.shut != Shut::kOpen; });
}

DeviceSpace ExtentStore::space(uint16_t index) const {
  const Device& device = CheckedDevice(index);
  return {.capacity = device.capacity_pages * kPageSize,
          .free = device.free_pages() * kPageSize,
          .live = device.live_pages * kPageSize,
          .pending = device.pending_pages * kPageSize,
          .doubtful = device.doubtful_pages * kPageSize,
          .quarantined = device.quarantined_pages * kPageSize};
}

DeviceSpace ExtentStore::total() const {
  DeviceSpace sum;
  for (uint16_t i = 0; i < device_count(); ++i) Add(space(i), &sum);
  return sum;
}

DeviceSpace ExtentStore::usable() const {
  DeviceSpace sum;
  for (uint16_t i = 0; i < device_count(); ++i) Add(usable(i), &sum);
  return sum;
}

DeviceSpace ExtentStore::usable(uint16_t device) const {
  DeviceSpace one = space(device);
  if (!closed_.empty() || devices_[device].draining) return {};
  if (devices_[device].away) {
    one.capacity = one.live;  // It holds that much, and no more.
    one.free = one.pending = one.doubtful = one.quarantined = 0;
  }
  return one;
}

std::string ExtentStore::UnusableNote() const {
  if (!closed_.empty()) return "; " + closed_;
  const auto note = [this](const auto& counts, std::string_view what) -> std::string {
    const auto count = std::ranges::count_if(devices_, counts);
    if (count == 0) return {};
    uint64_t pages = 0;
    for (const Device& device : devices_) pages += counts(device) ? device.capacity_pages : 0;
    const bool one = count == 1;
    return fmt::format("; {} of {} {} {} and {} nothing", one ? "1 device" : fmt::format("{} devices", count),
                       FormatBytes(pages * kPageSize), one ? "is" : "are", what, one ? "takes" : "take");
  };
  return note([](const Device& d) { return d.draining; }, "draining") +
         note([](const Device& d) { return !d.draining && d.away; }, "offline");
}

void ExtentStore::CheckInvariants() const {
  std::vector<uint64_t> pending(devices_.size());
  for (const Extent& extent : pending_) pending[extent.device] += extent.run.pages;
  for (uint16_t i = 0; i < device_count(); ++i) {
    const Device& device = devices_[i];
    device.pool.CheckInvariants();
    const uint64_t used = device.live_pages + device.pending_pages + device.doubtful_pages + device.quarantined_pages;
    device.cleared.CheckInvariants();
    TIER_CHECK(device.pool.used_pages() == used + device.cleared.pages(),
               "device {}: pool says {} used, live {} + pending {} + doubtful {} + quarantined {} + aside {}", i,
               device.pool.used_pages(), device.live_pages, device.pending_pages, device.doubtful_pages,
               device.quarantined_pages, device.cleared.pages());
    uint64_t doubtful = 0;
    for (const Doubtful& doubt : device.doubtful) doubtful += doubt.extent.run.pages;
    for (const Extent& extent : device.aside) doubtful += extent.run.pages;
    TIER_CHECK(doubtful == device.doubtful_pages, "device {}: listed {} doubtful pages of {}", i, doubtful,
               device.doubtful_pages);
    device.tried_again.CheckInvariants();
    uint64_t listed = 0;
    for (const base::PageRun place : device.quarantined) listed += place.pages;
    TIER_CHECK(listed + device.unlisted_pages == device.quarantined_pages,
               "device {}: listed {} quarantined pages and {} not, of {}", i, listed, device.unlisted_pages,
               device.quarantined_pages);
    TIER_CHECK(device.free_pages() + used == device.capacity_pages, "device {}: free {} + used {} of {}", i,
               device.free_pages(), used, device.capacity_pages);
    for (const auto& [first, runs] : device.scattered) {
      TIER_CHECK(runs.size() >= 2 && FirstPage(runs[0]) == first, "device {}: {} runs of the extent at page {}", i,
                 runs.size(), first);
    }
    TIER_CHECK(pending[i] == device.pending_pages, "device {}: listed {} pending {}", i, pending[i],
               device.pending_pages);
  }
}

}  // namespace tier::storage
