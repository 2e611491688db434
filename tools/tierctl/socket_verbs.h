// The verbs of the sockets of owners. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {

// Opens it, or says where it is.
int OpenSocket(const DaemonOptions& options, const std::string& owner);
// `purge`: the owner's name is given up too.
int CloseSocket(const DaemonOptions& options, const std::string& owner, bool purge);
int ListSockets(const DaemonOptions& options);

std::string RenderSockets(const v1::ListSocketsResponse& answer, const OutputOptions& output);
// Whose a uid is, for a table: the owner of a socket by name, a user by number.
std::string UserText(uint32_t uid, const std::string& owner);

}  // namespace tier::tierctl
