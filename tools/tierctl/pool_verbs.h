// The verb that shows the arena's windows.
#pragma once

#include <string>

#include "proto/result.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Prints the picture, or with --json what it was drawn from. `svg`: a file that gets the picture too; empty: none.
int ShowPoolMap(const DaemonOptions& options, const std::string& svg);

// Replaces the file. IO_ERROR names it, and the system's reason.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace tier::tierctl
