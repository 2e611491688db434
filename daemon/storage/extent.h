// An extent: pages on one SSD device, written once, read many times, then freed. They lie in one run, or, where the
// device has no run of that length left, in several (*scattered*); then ExtentStore::RunsOf says where.
#pragma once

#include <cstdint>

#include "daemon/base/page_run.h"

namespace tier::storage {

struct Extent {
  // In the device's data area; run.pages == 0: no extent. Scattered: where the first run begins, and the pages of all.
  base::PageRun run;
  uint16_t device = 0;  // Index of the device.
  bool scattered = false;

  explicit operator bool() const { return static_cast<bool>(run); }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace tier::storage
