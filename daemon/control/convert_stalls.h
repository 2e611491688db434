// Between the stalls of session::ControlApi and tier.v1's messages. Pure functions.
#pragma once

#include "daemon/session/control_api.h"
#include "tier/v1/control.pb.h"

namespace tier::control {

void ToMessage(const session::StallReport& report, v1::ListStallsResponse* message);

}  // namespace tier::control
