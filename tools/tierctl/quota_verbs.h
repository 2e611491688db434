// The verbs of quotas. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <optional>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/output.h"
#include "tools/tierctl/user_names.h"

namespace tier::tierctl {

// As it is typed: "default", "user" or "group", and a name for these two.
struct QuotaWords {
  std::string level;
  std::string name;
  std::string ram;  // "64GiB", "unlimited"; empty: it stays as it is.
  std::string ssd;
  std::string guarantee;
  std::string jobs;
};

// Who has what of which quota.
int ShowQuotas(const DaemonOptions& options);
// The quotas that there are; DENIED for others than administrators.
int ListQuotas(const DaemonOptions& options);
int SetQuota(const DaemonOptions& options, const QuotaWords& words);
int ClearQuota(const DaemonOptions& options, const QuotaWords& words);

// Nothing, or what is wrong with the words in a sentence; `request` is complete then.
std::optional<std::string> FillRequest(const QuotaWords& words, v1::SetQuotaRequest* request);
std::optional<std::string> FillRequest(const QuotaWords& words, v1::ClearQuotaRequest* request);
// "RAM 64.0 GiB, jobs 4": what such a request sets.
std::string LimitsText(const v1::SetQuotaRequest& request);
std::string RenderUses(const v1::ListQuotasResponse& answer, const OutputOptions& output);
std::string RenderQuotas(const v1::ListQuotasResponse& answer, const OutputOptions& output, const UserNames& names);

}  // namespace tier::tierctl
