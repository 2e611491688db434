// An extent: pages on one SSD device, written once, read many times, then freed.
#pragma once

#include <cstdint>

#include "daemon/base/page_run.h"

namespace tier::storage {

struct Extent {
  base::PageRun run;    // In the device's data area; run.pages == 0: no extent.
  uint16_t device = 0;  // Index of the device.

  explicit operator bool() const { return static_cast<bool>(run); }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace tier::storage
