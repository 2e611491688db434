// What users have of their quotas, and quotas in words.
#pragma once

#include <string>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/job_service.h"
#include "daemon/session/quota_table.h"

namespace tier::session {

// Of the caller, and for an admin of all users that have jobs. Engine thread.
std::vector<QuotaUse> UsesFor(const Caller& caller, JobService& jobs, const QuotaBook& book);

std::string QuotaText(const QuotaTarget& target);  // "user alice"
std::string QuotaText(const QuotaFields& fields);  // "ram 64 GiB, jobs unlimited"

}  // namespace tier::session
