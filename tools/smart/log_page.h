// The one command that tierd-smart sends to a device: "Get Log Page" for the SMART log page of the whole device, by the
// kernel's NVMe ioctl. It changes nothing on the device. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "daemon/storage/smart_log.h"
#include "proto/result.h"

namespace tier::smart {

using LogPage = std::array<std::byte, storage::kSmartLogBytes>;

// DENIED: the right is missing. INVALID: it is no NVMe device. IO_ERROR: it does not answer, or refuses. NOT_FOUND: it
// is not there.
Result<LogPage> ReadSmartLog(const std::string& disk);

}  // namespace tier::smart
