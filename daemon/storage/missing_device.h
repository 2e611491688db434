// MissingDevice: an SSD device that a start does without. What jobs persisted on it is lost until it is back at a later
// start; nothing is written over its number in the index, nor over what lies at its path. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/storage/device_numbers.h"

namespace tier::storage {

struct MissingDevice {
  std::string uuid;                        // Empty: none that the index needs was at `path`.
  std::string path;                        // Where it was last, or is configured. Empty: unknown.
  std::string reason;                      // Why it is missing.
  uint16_t number = DeviceNumbers::kNone;  // Stored; kNone without a uuid.
  bool is_configured = false;              // `path` is in ssd.devices, and no device of this run is there.

  std::string Name() const;  // Uuid and path, as far as they are known.
};

// What to tell the operator: which one, why, and what can be done.
std::string MissingText(const MissingDevice& device);

}  // namespace tier::storage
