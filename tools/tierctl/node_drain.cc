// See node_drain.h.
#include "tools/tierctl/node_drain.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/counted.h"
#include "daemon/config/quantity.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/interruption.h"
#include "tools/tierctl/job_processes.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/node_text.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(500);

// What a daemon may take for an answer beyond the end of the wait: it may use all of the time for its writes.
constexpr auto kAnswerTime = std::chrono::milliseconds(250);

// `end`: of the wait. What is left of it is all that the connection and the call may take.
template <typename ResponseMessage, typename Method, typename RequestMessage>
Result<ResponseMessage> AnswerBy(const DaemonOptions& options, Method method, const RequestMessage& request,
                                 std::chrono::milliseconds timeout, std::optional<Clock::time_point> end) {
  if (!end) return AnswerTo<ResponseMessage>(options, method, request, timeout);
  const auto left = [&] {
    const auto until_end = std::chrono::floor<std::chrono::milliseconds>(*end - Clock::now());
    return std::max(until_end, std::chrono::milliseconds(0)) + kAnswerTime;
  };
  const auto channel = Connect(options, left());
  if (!channel) return std::unexpected(channel.error());
  ResponseMessage response;
  if (const auto status = (*channel)->Call(method, request, &response, std::min(timeout, left())); !status)
    return std::unexpected(status.error());
  return response;
}

Result<v1::DrainResponse> AskDrain(const DaemonOptions& options, const std::string& job, std::chrono::seconds time,
                                   std::optional<Clock::time_point> end = {}) {
  v1::DrainRequest request;
  request.set_job(job);
  request.mutable_timeout()->set_seconds(time.count());
  return AnswerBy<v1::DrainResponse>(options, &Stub::Drain, request, time + control_client::kCallTimeout, end);
}

Result<v1::NodeStatus> AskStatus(const DaemonOptions& options, std::optional<Clock::time_point> end) {
  auto answer = AnswerBy<v1::GetStatusResponse>(options, &Stub::GetStatus, v1::GetStatusRequest(),
                                                control_client::kCallTimeout, end);
  if (!answer) return std::unexpected(answer.error());
  return std::move(*answer->mutable_status());
}

Result<v1::ListJobsResponse> AskJobs(const DaemonOptions& options, const std::string& page_token,
                                     std::optional<Clock::time_point> end) {
  v1::ListJobsRequest request;
  request.set_page_token(page_token);
  return AnswerBy<v1::ListJobsResponse>(options, &Stub::ListJobs, request, control_client::kCallTimeout, end);
}

// A page has fewer jobs than a node may have.
Result<v1::ListJobsResponse> AllJobs(const DrainSteps& steps) {
  v1::ListJobsResponse whole;
  for (std::string token;;) {
    const auto page = steps.jobs(token);
    if (!page) return page;
    whole.MergeFrom(*page);
    if (page->next_page_token().empty() || page->next_page_token() == token) return whole;
    token = page->next_page_token();
  }
}

// The processes, by job; "" where it cannot be told.
std::string Attached(const DrainSteps& steps) {
  const auto jobs = AllJobs(steps);
  return jobs ? AttachedText(*jobs) : "";
}

// The node as it is now, provided that the daemon is still the one of `epoch`, and drained. Sets an epoch that is not
// known yet.
Result<v1::NodeStatus> DrainedStatus(const DrainSteps& steps, std::optional<uint64_t>* epoch) {
  auto status = steps.status();
  if (!status) return status;
  if (epoch->value_or(status->epoch()) != status->epoch()) {
    return Fail(Code::kStale, fmt::format("tierd was restarted meanwhile: the new one is {}drained, {} attached to it",
                                          status->draining() ? "" : "not ",
                                          base::Counted(status->session_count(), "process is", "processes are")));
  }
  *epoch = status->epoch();
  if (status->draining()) return status;
  return Fail(Code::kRevoked, fmt::format("the node was undrained meanwhile: it takes jobs again, and {} attached",
                                          base::Counted(status->session_count(), "process is", "processes are")));
}

std::string WhatIsWritten(const v1::DrainResponse& answer) {
  return answer.stays_in_ram() ? "there is no SSD tier: what is dirty stays in RAM" : "what was dirty is on SSD";
}

void WarnUnmarked(const DrainSteps& steps, const v1::DrainResponse& answer) {
  if (answer.unmarked().empty()) return;
  steps.warn(fmt::format("where tierd crashes now, the next one takes jobs again: {}", answer.unmarked()));
}

// No process is attached any more, and what jobs hold was to be written since. Where the index failed that is an error,
// so that no restart follows behind &&: the tensors of jobs that could not be persisted end with it, and an index that
// is damaged may refuse the start.
Result<DrainedNode> Ended(const v1::NodeStatus& status, const Result<v1::DrainResponse>& written) {
  if (const std::string unpersisted = UnpersistedText(status); written && !unpersisted.empty()) {
    return Fail(Code::kIoError,
                fmt::format("no process is attached any more, and the node stays drained; {}", unpersisted));
  }
  if (written) return DrainedNode{.jobs = status.job_count(), .stays_in_ram = written->stays_in_ram()};
  return Fail(written.error().code, fmt::format("no process is attached any more, and the node stays drained; not all "
                                                "that its jobs hold is written: {}",
                                                written.error().message));
}

bool HasTensors(const v1::Job& job) { return job.tensor_count() != 0; }

// What of it ends with a restart. `node` comes with all open jobs.
Result<DrainedNode> WithUnpersisted(const DrainSteps& steps, Result<DrainedNode> node) {
  if (!node || node->jobs == 0) return node;
  const auto jobs = AllJobs(steps);
  if (!jobs) return std::unexpected(jobs.error());
  node->jobs = static_cast<uint64_t>(std::ranges::count_if(jobs->jobs(), HasTensors));
  node->unpersisted = UnpersistedJobsText(*jobs);
  node->some_persisted =
      std::ranges::any_of(jobs->jobs(), [](const v1::Job& job) { return job.persisted() && HasTensors(job); });
  return node;
}

// `end`: of the wait.
DrainSteps StepsOf(const DaemonOptions& options, std::optional<Clock::time_point> end = {}) {
  return {.drain = [&options, end](std::chrono::seconds time) { return AskDrain(options, "", time, end); },
          .status = [&options, end] { return AskStatus(options, end); },
          .jobs = [&options, end](const std::string& page_token) { return AskJobs(options, page_token, end); },
          .now = Clock::now,
          .pause = [] { std::this_thread::sleep_for(kPoll); },
          .tell =
              [&options](const std::string& sentence) {
                if (options.output.json) return;
                fmt::print("{}\n", Printable(sentence));
                (void)std::fflush(stdout);  // What follows may take days.
              },
          .warn = [](const std::string& sentence) { fmt::print(stderr, "tierctl: {}\n", Printable(sentence)); }};
}

// Of a drain of the node: whether it takes jobs all the same.
Error WithState(const DrainSteps& steps, Error error) {
  if (error.code == Code::kDenied) return error;
  const auto status = steps.status();
  if (status && status->draining()) error.message = "the node is drained; not all is written: " + error.message;
  return error;
}

// Not 0 where a restart behind && would lose all that a job has.
int ShowDrained(const DrainedNode& node, const OutputOptions& output) {
  const int status = node.unpersisted.empty() ? kExitOk : kExitFailure;
  if (output.json) {
    PrintJson({{"drained", ""},
               {"sessions", 0},
               {"jobs", node.jobs},
               {"stays_in_ram", node.stays_in_ram},
               {"unmarked", node.unmarked},
               {"unpersisted", node.unpersisted}});
    return status;
  }
  const std::string jobs = node.jobs == 0
                               ? ""
                               : fmt::format("; {} without processes keep{} tensors (tierctl job list)",
                                             base::Counted(node.jobs, "job"), node.jobs == 1 ? "s its" : " their");
  fmt::print("no process is attached any more{}\n", jobs);
  if (node.some_persisted) fmt::print("a restart ends what jobs have not persisted since they changed it\n");
  if (status != kExitOk) {
    (void)std::fflush(stdout);
    fmt::print(stderr,
               "tierctl: the node is drained, but a restart would lose all tensors of {}, which persisted nothing: {}"
               "remove it (tierctl job remove)\n",
               Printable(node.unpersisted),
               node.stays_in_ram ? "there is no SSD tier, so " : "its next run can (tierctl undrain), or ");
  }
  return status;
}

// Who interrupts it would not know that the node goes on without it as it is.
int DrainUntilEmpty(const DaemonOptions& options, std::optional<std::chrono::seconds> timeout) {
  std::optional<Clock::time_point> end;
  if (timeout) end = Clock::now() + *timeout;
  DrainSteps steps = StepsOf(options, end);
  steps.status = [status = std::move(steps.status)] {
    auto answer = status();
    if (answer && answer->draining())
      SayWhenInterrupted("tierctl: interrupted; the node stays drained (tierctl undrain)\n");
    return answer;
  };
  SayWhenInterrupted("tierctl: interrupted; the node may be drained (tierctl status, tierctl undrain)\n");
  const auto node = DrainAndWait(steps, timeout);
  return node ? ShowDrained(*node, options.output) : Explain(node.error());
}

}  // namespace

Result<DrainedNode> DrainAndWait(const DrainSteps& steps, std::optional<std::chrono::seconds> timeout) {
  std::optional<Clock::time_point> end;
  if (timeout) end = steps.now() + *timeout;
  const auto first = steps.drain(std::min(timeout.value_or(kWriteTime), kWriteTime));
  // It may be drained all the same: by an administrator, which this caller is not; or because it stops.
  if (!first && (first.error().code == Code::kDenied || first.error().code == Code::kDisconnected))
    return std::unexpected(first.error());
  std::optional<uint64_t> epoch;
  auto status = DrainedStatus(steps, &epoch);
  if (!status) return std::unexpected(first ? status.error() : first.error());
  if (first) {
    steps.tell("tierd takes no new job or process; " + WhatIsWritten(*first));
    WarnUnmarked(steps, *first);
  } else {
    steps.warn(fmt::format("drained; not all written: {}: {}", CodeName(first.error().code), first.error().message));
  }
  if (const std::string unpersisted = UnpersistedText(*status); !unpersisted.empty()) steps.warn(unpersisted);
  uint64_t sessions = status->session_count();
  if (sessions != 0) {
    const std::string attached = Attached(steps);
    steps.tell(fmt::format("waiting for {} to leave{}", base::Counted(sessions, "process", "processes"),
                           attached.empty() ? "" : ": " + attached));
  }
  std::optional<Result<v1::DrainResponse>> last;
  for (;; status = DrainedStatus(steps, &epoch)) {
    // A daemon that is busy will answer later.
    if (!status && status.error().code != Code::kTimeout) return std::unexpected(status.error());
    if (status) sessions = status->session_count();
    if (status && sessions == 0) {
      if (last) {
        auto node = WithUnpersisted(steps, Ended(*status, *last));
        if (!first && *last) WarnUnmarked(steps, **last);
        if (node && *last) node->unmarked = (*last)->unmarked();
        return node;
      }
      // Jobs that stay may have written since, and what failed before may work now.
      const auto left = end ? std::chrono::floor<std::chrono::seconds>(*end - steps.now()) : kWriteTimeMax;
      last = steps.drain(std::clamp(left, std::chrono::seconds(1), kWriteTimeMax));
      continue;
    }
    if (end && steps.now() + kPoll > *end) {
      const std::string attached = Attached(steps);
      return Fail(Code::kTimeout,
                  fmt::format("{} still attached{}; the node stays drained (tierctl undrain: it takes jobs again)",
                              base::Counted(sessions, "process is", "processes are"),
                              attached.empty() ? "" : fmt::format(" ({})", attached)));
    }
    steps.pause();
  }
}

std::optional<std::chrono::seconds> ParseTimeout(const std::string& text) {
  constexpr std::chrono::seconds kLongest = std::chrono::years(1);
  const bool is_number = text.find_first_not_of("0123456789") == std::string::npos;
  const auto duration = config::ParseDuration(is_number ? text + "s" : text);
  if (!duration) return std::nullopt;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*duration);
  if (seconds != *duration || seconds < std::chrono::seconds(1) || seconds > kLongest) return std::nullopt;
  return seconds;
}

int Drain(const DaemonOptions& options, const DrainRequest& asked) {
  if (asked.wait) return DrainUntilEmpty(options, asked.timeout);
  if (asked.timeout.value_or(kWriteTime) > kWriteTimeMax) {
    fmt::print(stderr, "tierctl: writes may take {} s at most; only with --wait may --timeout be longer\n",
               kWriteTimeMax.count());
    return kExitUsage;
  }
  const auto answer = AskDrain(options, asked.job, asked.timeout.value_or(kWriteTime));
  if (!answer) return Explain(asked.job.empty() ? WithState(StepsOf(options), answer.error()) : answer.error());
  if (options.output.json) {
    PrintJson({{"drained", asked.job}, {"stays_in_ram", answer->stays_in_ram()}, {"unmarked", answer->unmarked()}});
  } else if (asked.job.empty()) {
    fmt::print("tierd takes no new job or process; {}\n", WhatIsWritten(*answer));
  } else {
    fmt::print("job {}: {}\n", Printable(asked.job),
               answer->stays_in_ram() ? WhatIsWritten(*answer) : "everything dirty is on SSD");
  }
  const DrainSteps steps = StepsOf(options);
  WarnUnmarked(steps, *answer);
  const auto status = steps.status();  // The answer to a drain has no place for it.
  if (status && !status->index_failure().empty()) steps.warn(UnpersistedText(*status));
  return kExitOk;
}

int Undrain(const DaemonOptions& options) {
  return Ask<v1::UndrainResponse>(options, &Stub::Undrain, v1::UndrainRequest(), [&](const v1::UndrainResponse&) {
    options.output.json ? PrintJson({{"undrained", true}}) : fmt::print("tierd: new jobs and processes are taken\n");
    return kExitOk;
  });
}

}  // namespace tier::tierctl
