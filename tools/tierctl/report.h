// tierctl report: a support bundle, which a user sends to who is to help: what the daemon, this machine and the log
// say, without secrets. Without a daemon it has less, and says what is missing.
#pragma once

#include <string>

#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Writes it to `path`; empty: tierd-report-HOST-TIME.tar.gz here. A file that is there is not replaced. An exit code.
int WriteReport(const DaemonOptions& options, const std::string& path);

}  // namespace tier::tierctl
