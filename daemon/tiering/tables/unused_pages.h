// UnusedPages: extents that manifests name and no piece uses, as pages by user, by device, and by why they stay on a
// device that is being emptied. So what a user keeps, and what a device still holds and why, is known without a look at
// each manifest. Engine thread only.
//
// Why a manifest rests is known of one set of draining devices, which has a number (MoveState::drain). With the first
// rest of a later set those of the set before are void: their pages are to move again. Until then drain() is the number
// of the earlier set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/check.h"

namespace tier::tiering {

// Pages by device.
class DevicePages {
 public:
  uint64_t on(uint16_t device) const { return device < pages_.size() ? pages_[device] : 0; }
  uint16_t end() const { return static_cast<uint16_t>(pages_.size()); }  // Devices from here on have none.
  void Add(uint16_t device, uint64_t pages) {
    if (pages_.size() <= device) pages_.resize(device + size_t{1});
    pages_[device] += pages;
  }
  void Subtract(uint16_t device, uint64_t pages) {
    TIER_CHECK(on(device) >= pages, "{} pages of {} on device {}", pages, on(device), device);
    pages_[device] -= pages;
  }
  void Add(const DevicePages& other) {
    for (uint16_t device = 0; device < other.end(); ++device) Add(device, other.on(device));
  }
  bool operator==(const DevicePages&) const = default;

 private:
  std::vector<uint64_t> pages_;
};

// Of the manifest that names the extents.
enum class Stay : uint8_t {
  kOpenJob,  // It is of a job that is open or closing.
  kToMove,   // Nothing is known to keep it: its turn comes.
  kUnread,
  kNoRoom,
  kNotCommitted,
  kDamaged,
};
inline constexpr size_t kStays = 6;

class UnusedPages {
 public:
  uint64_t on(uint16_t device) const {
    uint64_t pages = 0;
    for (const DevicePages& each : pages_) pages += each.on(device);
    return pages;
  }
  uint64_t on(uint16_t device, Stay stay) const { return At(stay).on(device); }
  uint32_t drain() const { return drain_; }

  uint64_t of(uint32_t uid) const {  // Of that user's manifests.
    const auto found = of_.find(uid);
    return found == of_.end() ? 0 : found->second;
  }

  void Add(uint32_t uid, Stay stay, uint16_t device, uint64_t pages) {
    At(stay).Add(device, pages);
    of_[uid] += pages;
  }
  void Subtract(uint32_t uid, Stay stay, uint16_t device, uint64_t pages) {
    At(stay).Subtract(device, pages);
    SubtractOf(uid, pages);
  }
  // They are another user's from now on.
  void Move(uint32_t from, uint32_t to, uint64_t pages) {
    if (pages == 0 || from == to) return;
    SubtractOf(from, pages);
    of_[to] += pages;
  }
  void Move(const DevicePages& pages, Stay from, Stay to) {
    if (from == to) return;
    for (uint16_t device = 0; device < pages.end(); ++device) At(from).Subtract(device, pages.on(device));
    At(to).Add(pages);
  }
  // Rests are of this set of draining devices from now on.
  void BeginDrain(uint32_t drain) {
    drain_ = drain;
    for (const Stay rest : {Stay::kUnread, Stay::kNoRoom, Stay::kNotCommitted}) {
      At(Stay::kToMove).Add(std::exchange(At(rest), DevicePages()));
    }
  }

 private:
  const DevicePages& At(Stay stay) const { return pages_[static_cast<size_t>(stay)]; }
  DevicePages& At(Stay stay) { return pages_[static_cast<size_t>(stay)]; }

  void SubtractOf(uint32_t uid, uint64_t pages) {
    const auto found = of_.find(uid);
    TIER_CHECK(found != of_.end() && found->second >= pages, "{} pages of user {}", pages, uid);
    found->second -= pages;
    if (found->second == 0) of_.erase(found);
  }

  std::array<DevicePages, kStays> pages_;
  std::unordered_map<uint32_t, uint64_t> of_;  // By user; none is 0.
  uint32_t drain_ = 0;
};

}  // namespace tier::tiering
