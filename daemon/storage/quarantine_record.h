// QuarantineRecord: the quarantined places of one device as bytes and back (layout: proto/quarantine_record.h).
// Thread-compatible.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "daemon/base/page_run.h"
#include "proto/result.h"

namespace tier::storage {

// Of one device. Where more places are quarantined, the device is failing, and the others are not written down.
inline constexpr size_t kQuarantinedPlacesMax = 4096;

// The first kQuarantinedPlacesMax of them.
std::vector<std::byte> EncodeQuarantine(std::span<const base::PageRun> places);
// CORRUPT: no such record, or damaged. VERSION: of another tierd.
Result<std::vector<base::PageRun>> DecodeQuarantine(std::span<const std::byte> bytes);

}  // namespace tier::storage
