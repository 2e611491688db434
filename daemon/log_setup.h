// The daemon's log: one line an event on standard error. Under a journal each line begins with its priority ("<6>") and
// has no time of its own; a person gets a time and a level. Set up once, before threads start.
#pragma once

#include "daemon/config/config.h"

namespace tier {

void SetUpLog(const config::LogConfig& config);

}  // namespace tier
