// tierctl report: a support bundle, which a user sends to who is to help: what the daemon, this machine and the log
// say, without secrets. Without a daemon it has less, and says what is missing.
#pragma once

#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Writes it to `path`; empty: tierd-report-HOST-TIME.tar.gz here. A file that is there is not replaced. An exit code.
int WriteReport(const DaemonOptions& options, const std::string& path);

// Why the file was not made, by errno. NOT_FOUND: its folder is not there.
Error NotWritten(const std::string& path, int error);

// What the daemon takes for this job and no other. To an administrator's "1300/train" is uid 1300's train, also where a
// job of another user is called so: UID/NAME always. Others have jobs of one user alone, and their names as they are.
std::string NameForDaemon(const v1::Job& job, bool administrator);

}  // namespace tier::tierctl
