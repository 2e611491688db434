// The options of the daemon, as callers of its control interface see and change them. Threads: any.
#pragma once

#include <string>

#include "daemon/session/control_api.h"
#include "daemon/session/settings.h"
#include "proto/result.h"

namespace tier::session {

// See ControlApi.
Result<SettingsReport> ListOptions(const SettingsAccess& settings, const Caller& caller);
Result<OptionState> SetOption(const SettingsAccess& settings, const Caller& caller, const std::string& name,
                              const std::string& value);

}  // namespace tier::session
