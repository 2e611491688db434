// Which file systems can hold the SSD file, and how much room they have. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

// INVALID: two of these paths of ssd.devices lead to one device, such as a link and its target. A path that cannot be
// looked at is no other's.
Status CheckDistinct(std::span<const std::string> paths);

// The path, or the nearest directory above it that is there.
std::string ExistingPartOf(const std::string& path);

// Bytes of an open regular file or block device.
Result<uint64_t> SizeOf(int fd, const std::string& path);

Result<FileSystemSpace> SpaceOf(const std::string& path);

// Why who opens that path does not find the file that is open: "the file PATH was deleted, …". Empty: it does, or that
// cannot be seen now.
std::string WhyMisplaced(int fd, const std::string& path);

}  // namespace tier::storage
