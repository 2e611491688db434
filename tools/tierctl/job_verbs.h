// The verbs of jobs. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// As it is typed; empty: it stays as it is.
struct JobWords {
  std::string name;
  std::string guarantee;  // "64GiB"; "0": none.
  std::string limit;
  std::string ssd_guarantee;
  std::string ssd_limit;
};
struct JobChange {
  std::string name;
  std::optional<uint64_t> guarantee_bytes;
  std::optional<uint64_t> limit_bytes;
  std::optional<uint64_t> ssd_guarantee_bytes;
  std::optional<uint64_t> ssd_limit_bytes;
};

// The open jobs, one in a row.
std::string RenderJobs(const v1::ListJobsResponse& answer, const OutputOptions& output);
// `lost`: only what jobs persisted on devices that are missing.
int ListJobs(const DaemonOptions& options, bool lost);
// `show_token`: who reads it may join the job, so it stays out of what is pasted and kept.
int ShowJob(const DaemonOptions& options, const std::string& name, bool show_token);
int SetJob(const DaemonOptions& options, const JobChange& change);
// `user`: for whom it is, by uid or by the name of an owner or user; none: the caller.
int OpenJob(const DaemonOptions& options, const JobChange& job, bool named, const std::optional<std::string>& user);
struct Removal {
  bool purge = false;  // What it persisted too.
  bool force = false;  // Also while processes are attached to it.
};
// Refused while processes are attached, unless it is forced. By the list of jobs: a process that attaches between that
// and the removal is ended without a question.
int RemoveJob(const DaemonOptions& options, const std::string& name, const Removal& removal);
// The refusal, for a job with processes.
std::string StillAttachedText(const v1::Job& job, const std::string& name);
// What was done: which processes lost `job`, and what it held. A job without figures was not open.
std::string RemovedText(const v1::Job& job, const std::string& name, bool purge);
// Names of jobs, one a line, as other verbs take them: UID/NAME where several owners have one of that name.
int ListJobNames(const DaemonOptions& options);

// The number of a user of this system; none: there is no such user. May wait for a server of the network.
std::optional<uint32_t> UserNumber(const std::string& name);
// The number of an owner or user; none: there is none of that name.
using NumberOf = std::function<std::optional<uint32_t>(const std::string&)>;
// The job that is meant by "NAME", "UID/NAME", or with the name of an owner or user in place of UID. Of an
// administrator the last two mean no job that another user has called so. NOT_FOUND; INVALID where several owners have
// one of that name.
Result<const v1::Job*> FindJob(const v1::ListJobsResponse& jobs, const std::string& name, bool admin = true,
                               const NumberOf& number_of = UserNumber);
// INVALID: as SizeArgument has it, for the first of the sizes that is refused.
Result<JobChange> ChangeOf(const JobWords& words);

}  // namespace tier::tierctl
