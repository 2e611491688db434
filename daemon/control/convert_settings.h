// Between the options of session::ControlApi and tier.v1's messages. Pure functions.
#pragma once

#include "daemon/session/settings.h"
#include "tier/v1/control.pb.h"

namespace tier::control {

void ToMessage(const session::OptionState& option, v1::DaemonOption* message);
void ToMessage(const session::SettingsReport& report, v1::ListOptionsResponse* message);

}  // namespace tier::control
