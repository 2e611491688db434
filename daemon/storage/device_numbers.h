// DeviceNumbers: an index numbers its devices as they came to it, and what it stores names them so; a run of the daemon
// numbers them as ssd.devices lists them. This says which is which (index_devices.h makes it). Thread-safe once made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "daemon/base/check.h"

namespace tier::storage {

class DeviceNumbers {
 public:
  static constexpr uint16_t kStoredMax = 64;     // A stored number is below.
  static constexpr uint16_t kNone = kStoredMax;  // No device of this run.

  // Where no index says otherwise a device has one number.
  DeviceNumbers() {
    for (uint16_t i = 0; i < kStoredMax; ++i) devices_[i] = stored_[i] = static_cast<uint8_t>(i);
  }
  // `stored[i]`: the number of the run's device `i`. REQUIRES: each of them once.
  explicit DeviceNumbers(std::span<const uint16_t> stored) {
    TIER_CHECK(stored.size() < kStoredMax, "{} devices", stored.size());
    devices_.fill(kNone);
    stored_.fill(kNone);
    for (size_t device = 0; device < stored.size(); ++device) {
      const uint16_t number = stored[device];
      TIER_CHECK(number < kStoredMax && devices_[number] == kNone, "device {} has number {}", device, number);
      devices_[number] = static_cast<uint8_t>(device);
      stored_[device] = static_cast<uint8_t>(number);
    }
  }

  uint16_t StoredOf(uint16_t device) const {
    TIER_CHECK(device < kStoredMax && stored_[device] != kNone, "device {} has no number", device);
    return stored_[device];
  }
  // kNone: the number is of no device of this run.
  uint16_t DeviceOf(uint16_t stored) const { return stored < kStoredMax ? devices_[stored] : kNone; }

 private:
  std::array<uint8_t, kStoredMax> devices_{};  // By stored number.
  std::array<uint8_t, kStoredMax> stored_{};   // By number of this run.
};

}  // namespace tier::storage
