// How tierctl finds the daemon: the admin socket where this user may, else the control socket.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// A refusal lists every socket tried with its reason; DISCONNECTED says how to start a daemon.
// `within`: how long all sockets together may take, where that is less than usual.
Result<std::unique_ptr<control_client::Channel>> Connect(const DaemonOptions& options,
                                                         std::optional<std::chrono::milliseconds> within = {});
// Whether it came to the admin socket.
bool IsForAdministrators(const control_client::Channel& channel);
// The refusal of what only that one may be asked for, as the daemon words it; `what`: "set a quota".
Error AdministratorsOnly(const char* what);
// Whether the caller says which daemon it means, by option or environment.
bool SocketIsNamed(const DaemonOptions& options);
// What a verb ends with that failed so: the one table for all verbs.
int ExitCodeOf(Code code);
// Prints the error's sentence and gives its exit code.
int Explain(const Error& error);

}  // namespace tier::tierctl
