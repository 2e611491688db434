// The daemon's log: one line an event on standard error. Under a journal each line begins with its priority ("<6>") and
// has no time of its own; a person gets a time and a level.
#pragma once

#include <functional>
#include <string>

#include "daemon/config/config.h"

namespace tier {

// Whether standard error goes to a journal. systemd names the stream by device and inode in $JOURNAL_STREAM; a process
// whose standard error is redirected later has that variable too.
bool StandardErrorIsJournal();
// Before a refusal on standard error: the priority "err" where a journal reads it, else nothing. Allocates nothing.
const char* RefusalPrefix(bool journal = StandardErrorIsJournal());
// Whether lines of this log begin with their priority.
bool LogsForJournal(const config::LogConfig& config);
// Once, before threads start.
void SetUpLog(const config::LogConfig& config);
// Any thread. `say` writes the lines that tell of the change; they are logged at the more verbose of both levels.
void ChangeLog(const config::LogConfig& config, const std::function<void()>& say);

}  // namespace tier
