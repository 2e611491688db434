// DeviceTable: what the engine knows of each SSD device: its health, and what it has under way. Engine thread only.
//
// Changes through transfers/devices.h alone, which tells the ExtentStore what follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/storage/device_health.h"

namespace tier::tiering {

struct DeviceEntry {
  storage::DeviceHealth health;
  uint32_t writes = 0;  // Under way.
  bool shut = false;    // As the ExtentStore was told last.
  bool away = false;
};

class DeviceTable {
 public:
  explicit DeviceTable(uint16_t count) : devices_(count) {}

  uint16_t count() const { return static_cast<uint16_t>(devices_.size()); }
  const DeviceEntry& operator[](uint16_t device) const {
    TIER_CHECK(device < devices_.size(), "device {} of {}", device, devices_.size());
    return devices_[device];
  }
  DeviceEntry& Edit(uint16_t device) { return const_cast<DeviceEntry&>(std::as_const(*this)[device]); }
  // Probes under way.
  void StartProbe() { ++probes_; }
  void EndProbe() {
    TIER_CHECK(probes_ != 0, "a probe ended, {} devices", devices_.size());
    --probes_;
  }
  bool any_probe() const { return probes_ != 0; }
  // Something takes extents again that did not: who waits for that may look.
  void NoteOpened() { opened_ = true; }
  bool TakeOpened() { return std::exchange(opened_, false); }
  std::optional<base::TimePoint> NextDeadline(base::TimePoint now) const {
    std::optional<base::TimePoint> next;
    for (const DeviceEntry& device : devices_) {
      const auto at = device.health.NextDeadline(now);
      if (at && (!next || *at < *next)) next = at;
    }
    return next;
  }

 private:
  std::vector<DeviceEntry> devices_;
  uint32_t probes_ = 0;
  bool opened_ = false;
};

}  // namespace tier::tiering
