// Opens the configured devices of a start, in two passes. The first one opens what is there, and writes nothing. When
// all of that is known, and the index (known_devices.h) finds no path that seems misspelled, the second one makes files
// that are absent and formats what is blank. So a mistake in one path is found before anything is written at another.
// Files that are to be larger are extended last, once the index was read and checked too. One that cannot be extended
// serves as it is.
//
// An attempt of the first pass may hang in the kernel: a dead disk answers an open, an ioctl or a read after minutes or
// never. So each runs on a thread of its own, all at once, and all have the same few seconds. A device that hangs for
// longer does not answer: it is lost, where the index had one at that path, and what its thread opens later is closed.
// A device that fails and that jobs need is opened again at least once, however late it failed, and that attempt has
// the same few seconds.
//
// With a plan (SsdTierOptions) the same is found out beside a daemon that has the devices, and nothing is locked, made
// or written; what the index refuses is looked for too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/storage/device_file.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/ssd_tier_options.h"
#include "proto/result.h"

namespace tier::storage {

struct OpenedDevices {
  std::vector<DeviceFile> files;    // In the order of the configuration.
  std::vector<AbsentPath> absent;   // Configured, and done without.
  std::string shortage;             // Of room for a device. Empty: there was room.
  std::vector<std::string> unread;  // Of a plan: why something could not be read, and so was not checked.
};

// Refusals as SsdTier::Open. Files that a refused call made are gone again.
Result<OpenedDevices> OpenDevices(const SsdTierOptions& options);

// Extends the files that are to be larger, and gives back what an earlier start, which was killed meanwhile, left
// behind the others. Of each file, why it keeps its size for lack of room, or for another failure; empty: it does not.
// `files`: as OpenDevices gave them, of a start that nothing about devices or index refuses any more.
std::vector<std::string> SettleSizes(std::span<DeviceFile> files, const SsdTierOptions& options);

}  // namespace tier::storage
