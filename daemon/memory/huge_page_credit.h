// HugePageCredit: how much of the kernel's pool of huge pages the arena may still ask for.
//
// The idea: a reading of the pool says nothing certain while the arena itself takes from it or gives back, as it may
// have been taken before or after. So the arena counts what it does, and believes a reading only if it has done nothing
// since that was asked for. What others take meanwhile makes a window fail, or fall back to small pages.
//
// What is being closed is no credit yet: a window that is opened before it finds the pool empty. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"

namespace tier::memory {

class HugePageCredit {
 public:
  uint64_t bytes() const { return bytes_; }
  uint64_t making_bytes() const { return making_bytes_; }  // Of windows that may come to be in huge pages.
  uint64_t closing_bytes() const { return closing_bytes_; }

  void StartMaking(uint64_t bytes) {
    bytes_ -= bytes < bytes_ ? bytes : bytes_;
    making_bytes_ += bytes;
    quiet_ = false;
  }
  void EndMaking(uint64_t bytes) {
    TIER_CHECK(making_bytes_ >= bytes, "{} bytes of {} in the making", bytes, making_bytes_);
    making_bytes_ -= bytes;
  }
  void StartClosing(uint64_t bytes) {
    closing_bytes_ += bytes;
    quiet_ = false;
  }
  // The pages are free, also where another process still maps the window: it was punched.
  void EndClosing(uint64_t bytes) {
    TIER_CHECK(closing_bytes_ >= bytes, "{} bytes of {} being closed", bytes, closing_bytes_);
    closing_bytes_ -= bytes;
    bytes_ += bytes;
  }

  // A reading was asked for, and has come.
  void StartReading() { quiet_ = making_bytes_ + closing_bytes_ == 0; }
  void TakeReading(uint64_t free_bytes) {
    if (quiet_) bytes_ = free_bytes;
  }

 private:
  uint64_t bytes_ = 0;
  uint64_t making_bytes_ = 0;
  uint64_t closing_bytes_ = 0;
  bool quiet_ = true;  // Since the reading was asked for.
};

}  // namespace tier::memory
