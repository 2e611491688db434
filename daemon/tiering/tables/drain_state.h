// DrainState: whether the daemon is being stopped, and which devices are being emptied. Engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/tables/policy.h"

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
  // Goes over all pieces that the slab holds, in passes. REQUIRES: it holds some.
  PieceId NextPiece(const PieceSlab& pieces) {
    cursor_ = pieces.NextHeld(cursor_ + 1);
    if (cursor_ == pieces.capacity()) cursor_ = pieces.NextHeld(0);
    ++looked_;
    return PieceId{cursor_};
  }
  // What the pass met that leaves its device now, or will.
  void NoteMoving() { moving_ = true; }
  bool PassIsOver(const PieceSlab& pieces) const { return looked_ >= pieces.held(); }
  // True: some pieces were moving.
  bool EndPass() {
    looked_ = 0;
    return std::exchange(moving_, false);
  }
  void SetNextAt(base::TimePoint at) { next_at_ = at; }
  base::TimePoint next_at() const { return next_at_; }

 private:
  uint64_t devices_ = 0;  // One bit for each device.
  uint32_t cursor_ = 0;   // The piece looked at last.
  uint32_t looked_ = 0;   // Pieces, in this pass.
  bool moving_ = false;
  base::TimePoint next_at_;
  bool draining_ = false;
  std::string reason_;
};

}  // namespace tier::tiering
