// Which NVMe devices a path stands on, as sysfs tells: a block device itself, or the one that a file's file system is
// on, through partitions and through what is made of several devices (RAID, LVM, encryption). Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::smart {

inline constexpr int kLayersMax = 16;     // Of devices that are made of devices.
inline constexpr size_t kDisksMax = 256;  // Behind one path.

// The device numbers of the path: its own where it is a block device, else those of the file system that it is on.
// NOT_FOUND: nothing is there. DENIED, IO_ERROR: as stat(2) says.
Result<dev_t> DeviceNumberOf(const std::string& path);
struct Disk {
  std::string name;    // "nvme0n1": "/dev/nvme0n1".
  std::string serial;  // As one word. storage::kSmartSerialUnknown: sysfs has none.
  friend auto operator<=>(const Disk&, const Disk&) = default;
};

struct DisksBehind {
  std::vector<Disk> disks;           // In order, each once; at least one.
  std::vector<std::string> unknown;  // A sentence for each part beside these of which nothing can be known.
  bool may_be_more = false;          // sysfs could not be read in part: disks may be there that are not listed.
};

// `sys`: "/sys", or where tests keep theirs. NOT_FOUND: it stands on no device that sysfs knows (a network, memory), or
// on none that is an NVMe device; the sentence says which. IO_ERROR: sysfs could not be read, so that is not known.
Result<DisksBehind> NvmeDisksBehind(dev_t device, const std::string& sys);

}  // namespace tier::smart
