// Verbs that touch a device or file directly; they need no daemon.
#pragma once

#include <string>

#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {

// Writes a fresh superblock pair. Refused (exit 5) on foreign content or a superblock of ours unless `force`, and
// always while a daemon holds the device.
int FormatDevice(const std::string& path, bool force, const OutputOptions& output);
// What the superblock says, for devices that no daemon has open too; and where one answers that has it open, how it
// does.
int ShowDevice(const std::string& path, const DaemonOptions& options);

}  // namespace tier::tierctl
