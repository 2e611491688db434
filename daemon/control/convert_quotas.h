// Between the quotas of session::ControlApi and tier.v1's messages. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "tier/v1/control.pb.h"
#include "daemon/session/quota_table.h"
#include "proto/result.h"

namespace tier::control {

inline constexpr size_t kQuotaNameSizeMax = 256;  // Bytes, as in the configuration.

// INVALID: no level, a default with a name, or a name that no user has.
Result<session::QuotaTarget> QuotaTargetOf(v1::QuotaLevel level, const std::string& name);
// INVALID: a limit that is both unlimited and a figure, or is too large a figure.
Result<session::QuotaFields> FromMessage(const v1::SetQuotaRequest& message);
void ToMessage(const session::QuotaReport& report, v1::ListQuotasResponse* message);

}  // namespace tier::control
