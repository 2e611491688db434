// Which file systems can hold the SSD file, and how much room they have. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/storage/sizing.h"
#include "proto/result.h"

namespace tier::storage {

// Why a file system of this statfs type cannot serve ("tmpfs: …"); nothing if it may.
std::optional<std::string_view> ReasonAgainstFileSystem(uint64_t type);

// INVALID with the reason when the file system beneath `path` cannot serve; NOT_FOUND, DENIED when it cannot be asked.
Status CheckFileSystem(const std::string& path);

// NOT_FOUND for a missing path that names a device: under /dev no SSD file is made.
Status CheckNewFile(const std::string& path);

// What can be told of a path of ssd.devices without opening it: it is a block device, or a regular file on a file
// system that can serve, or one can be made there. INVALID, NOT_FOUND or DENIED as opening it would answer.
Status CheckDevicePath(const std::string& path, bool any_file_system);

Result<FileSystemSpace> SpaceOf(const std::string& path);

}  // namespace tier::storage
