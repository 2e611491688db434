// The size of the whole drive on which a file lies, or of which a block device is a part: what its maker's drive writes
// are counted in. Any thread; it reads a few small files of sysfs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tier::storage {

// Nothing: the path is not there, or what lies below it is no block device (a network's file system, btrfs, overlay),
// or a volume on others (LVM, LUKS, md).
std::optional<uint64_t> DriveBytes(const std::string& path);
// The same for a block device's number, by a sysfs that is mounted at `sysfs`.
std::optional<uint64_t> DriveBytes(dev_t number, const std::string& sysfs);

}  // namespace tier::storage
