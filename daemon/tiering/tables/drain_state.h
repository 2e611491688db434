// DrainState: whether the daemon is being stopped, and which devices are being emptied. Engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/tables/piece_pass.h"

namespace tier::tiering {

class DrainState {
 public:
  static constexpr uint16_t kDevicesMax = 64;

  // From now on requests are refused, for this reason.
  void Start(std::string reason) {
    draining_ = true;
    reason_ = std::move(reason);
  }
  bool draining() const { return draining_; }
  const std::string& reason() const { return reason_; }

  void SetDevice(uint16_t device, bool draining) {
    TIER_CHECK(device < kDevicesMax, "device {}", device);
    const uint64_t bit = uint64_t{1} << device;
    devices_ = draining ? devices_ | bit : devices_ & ~bit;
    next_at_ = {};
  }
  bool any_device() const { return devices_ != 0; }
  bool drains(uint16_t device) const { return (devices_ >> device & 1) != 0; }
  // A pass goes over all pieces of jobs.
  PiecePass& pass() { return pass_; }
  // What the pass met that leaves its device now, or will.
  void NoteMoving() { moving_ = true; }
  // True: some pieces were moving.
  bool EndPass() {
    pass_.Begin();
    return std::exchange(moving_, false);
  }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }
  base::TimePoint next_at() const { return next_at_; }

 private:
  uint64_t devices_ = 0;  // One bit for each device.
  PiecePass pass_;
  bool moving_ = false;
  base::TimePoint next_at_;
  bool draining_ = false;
  std::string reason_;
};

}  // namespace tier::tiering
