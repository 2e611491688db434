#include "tools/tierctl/job_verbs.h"

#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/counted.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/job_processes.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/size_argument.h"
#include "tools/tierctl/socket_verbs.h"
#include "tools/tierctl/user_names.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

constexpr auto kLeaving = std::chrono::seconds(1);
constexpr auto kPoll = std::chrono::milliseconds(100);

std::string LimitText(uint64_t limit) { return limit == 0 ? "none" : HumanBytes(limit); }

// A job that is reserved has none yet.
std::string SessionsText(const v1::Job& job) {
  return job.reserved() ? std::string("reserved") : std::to_string(job.session_count());
}

void PrintJob(const v1::Job& job, const OutputOptions& output) {
  std::string ranks;
  for (const int32_t rank : job.ranks()) ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
  const uint64_t asked = job.acquire_hits_total() + job.acquire_misses_total();
  const std::string fields = RenderFields(
      {
          {"job", job.name() + (job.named() ? "  (named)" : "") + (job.reserved() ? "  (reserved)" : "")},
          {"owner", fmt::format("{}uid {}", job.owner().empty() ? "" : job.owner() + ", ", job.uid())},
          {"ranks", job.world_size() > 0 ? fmt::format("{} of {}", ranks, job.world_size())
                                         : base::Counted(job.session_count(), "session")},
          {"processes", ProcessesText(job)},
          {"RAM", fmt::format("{} held in {}, {} in use, {} leased, {} dirty, {} moved", HumanBytes(job.held_bytes()),
                              base::Counted(job.window_count(), "window"), HumanBytes(job.ram_bytes()),
                              HumanBytes(job.leased_bytes()), HumanBytes(job.dirty_bytes()),
                              HumanBytes(job.moved_bytes_total()))},
          {"promise", fmt::format("{} promised, guarantee {}, {} borrowed beyond it, {} owed",
                                  HumanBytes(job.promised_bytes()), LimitText(job.guarantee_bytes()),
                                  HumanBytes(job.borrowed_bytes()), HumanBytes(job.owed_bytes()))},
          {"may hold", fmt::format("{} now, limit {}", HumanBytes(job.share_bytes()), LimitText(job.limit_bytes()))},
          {"kept", fmt::format("{} of windows that were taken from it and that its processes still have",
                               HumanBytes(job.kept_bytes()))},
          {"SSD", fmt::format("{} held, {} written, {} read", HumanBytes(job.ssd_bytes()),
                              HumanBytes(job.swap_out_bytes_total()), HumanBytes(job.swap_in_bytes_total()))},
          {"keeps", fmt::format("{} in tensors, SSD guarantee {}, SSD limit {}", HumanBytes(job.logical_bytes()),
                                HumanBytes(job.ssd_guarantee_bytes()), LimitText(job.ssd_limit_bytes()))},
          {"tensors", fmt::format("{} ({} torn), {}", job.tensor_count(), job.torn_count(),
                                  base::Counted(job.lease_count(), "lease"))},
          {"acquires", fmt::format("{} of {} from RAM, waited {:.3f} s", job.acquire_hits_total(), asked,
                                   job.stall_seconds_total())},
      },
      output);
  fmt::print("{}", fields);
  if (!job.token().empty()) fmt::print("TIERD_JOB_TOKEN={}\n", Printable(job.token()));
}

int ShowOneJob(const DaemonOptions& options, const v1::Job& job) {
  options.output.json ? PrintJson(ToJson(job)) : PrintJob(job, options.output);
  return kExitOk;
}

void PrintStored(const google::protobuf::RepeatedPtrField<v1::StoredManifest>& stored, const OutputOptions& output) {
  const auto state = [](const v1::StoredManifest& each) {
    if (each.damage().empty()) return std::string("can be resumed");
    return (each.lost_devices().empty() ? "damaged: " : "lost: ") + each.damage();
  };
  fmt::print("\npersisted by jobs that are not open (tierctl job remove --purge UID/JOB frees it):\n{}",
             RenderTable(
                 {
                     MakeColumn("JOB", stored, false, [](const v1::StoredManifest& each) { return each.name(); }),
                     MakeColumn("UID", stored, true,
                                [](const v1::StoredManifest& each) { return UserText(each.uid(), each.owner()); }),
                     MakeColumn("SSD", stored, true,
                                [](const v1::StoredManifest& each) { return HumanBytes(each.ssd_bytes()); }),
                     MakeColumn("STATE", stored, false, state),
                 },
                 output));
}

void PrintUnopened(const google::protobuf::RepeatedPtrField<v1::UnopenedReservation>& unopened,
                   const OutputOptions& output) {
  using Each = v1::UnopenedReservation;
  fmt::print(
      "\nreserved, and not open (tried again each minute; tierctl job remove UID/JOB gives one up):\n{}",
      RenderTable(
          {
              MakeColumn("JOB", unopened, false, [](const Each& each) { return each.name(); }),
              MakeColumn("UID", unopened, true, [](const Each& each) { return UserText(each.uid(), each.owner()); }),
              MakeColumn("GUARANTEE", unopened, true,
                         [](const Each& each) { return LimitText(each.guarantee_bytes()); }),
              MakeColumn("SSD GUARANTEE", unopened, true,
                         [](const Each& each) { return LimitText(each.ssd_guarantee_bytes()); }),
              MakeColumn("REASON", unopened, false, [](const Each& each) { return each.reason(); }),
          },
          output));
}

void PrintJobs(const v1::ListJobsResponse& answer, const OutputOptions& output) {
  fmt::print("{}", RenderJobs(answer, output));
  if (answer.unopened_reservations_size() != 0) PrintUnopened(answer.unopened_reservations(), output);
  if (answer.stored_manifests_size() != 0) PrintStored(answer.stored_manifests(), output);
}

void PrintLost(const v1::ListJobsResponse& answer, const OutputOptions& output) {
  if (answer.stored_manifests().empty()) {
    fmt::print("no job is lost\n");
    return;
  }
  const auto devices = [](const v1::StoredManifest& each) {
    return fmt::format("{}", fmt::join(each.lost_devices(), " "));
  };
  const auto& lost = answer.stored_manifests();
  fmt::print(
      "{}\nWhole again when the devices are back at a restart of tierd; given up by tierctl job remove --purge "
      "UID/JOB,\n"
      "or all that is on a device by tierctl device purge UUID (tierctl device list says why it is missing).\n",
      RenderTable(
          {
              MakeColumn("JOB", lost, false, [](const v1::StoredManifest& each) { return each.name(); }),
              MakeColumn("UID", lost, true,
                         [](const v1::StoredManifest& each) { return UserText(each.uid(), each.owner()); }),
              MakeColumn("HERE", lost, true,
                         [](const v1::StoredManifest& each) { return HumanBytes(each.ssd_bytes()); }),
              MakeColumn("MISSING DEVICES", lost, false, devices),
          },
          output));
}

// Leaves only what is lost.
void KeepLost(v1::ListJobsResponse* answer) {
  answer->clear_jobs();
  answer->clear_unopened_reservations();
  auto* const stored = answer->mutable_stored_manifests();
  const auto whole = [](const v1::StoredManifest& each) { return each.lost_devices().empty(); };
  stored->erase(std::remove_if(stored->begin(), stored->end(), whole), stored->end());
}

v1::ListJobsRequest WithTokens(bool tokens) {
  v1::ListJobsRequest request;
  request.set_with_tokens(tokens);
  return request;
}

template <typename Show>
int AskJobs(const DaemonOptions& options, bool tokens, Show&& show) {
  const auto all = [](const v1::ListJobsResponse&, v1::ListJobsRequest*) { return true; };
  return AskPages<v1::ListJobsResponse>(options, &Stub::ListJobs, WithTokens(tokens), all, show);
}

// What stands before the first '/', which may be an owner, and behind it.
std::optional<std::pair<std::string, std::string>> SplitAtOwner(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0) return std::nullopt;
  return std::pair(name.substr(0, slash), name.substr(slash + 1));
}

// Whether a uid, or the name of an owner or user, stands before the first '/'.
bool NamesAnOwner(const std::string& name, const NumberOf& number_of) {
  const auto split = SplitAtOwner(name);
  if (!split) return false;
  const std::string& owner = split->first;
  uint32_t uid = 0;
  const auto [end, error] = std::from_chars(owner.data(), owner.data() + owner.size(), uid);
  return (error == std::errc() && end == owner.data() + owner.size()) || number_of(owner).has_value();
}

// The number of an owner of a socket or of a user, as an administrator's daemon has it.
Result<NumberOf> NumbersFor(const control_client::Channel& channel) {
  if (!IsForAdministrators(channel)) return UserNumber;
  v1::ListSocketsResponse sockets;
  if (auto listed = channel.Call(&Stub::ListSockets, v1::ListSocketsRequest(), &sockets); !listed)
    return std::unexpected(listed.error());
  return [sockets](const std::string& name) -> std::optional<uint32_t> {
    for (const v1::OwnerSocket& socket : sockets.sockets()) {
      if (socket.owner() == name) return socket.uid();
    }
    return UserNumber(name);
  };
}

// Of a number, or the name of an owner or user.
Result<uint32_t> UidOf(const DaemonOptions& options, const std::string& user) {
  if (const auto uid = NumberIn(user)) return *uid;
  const auto channel = Connect(options);
  if (!channel) return std::unexpected(channel.error());
  const auto number_of = NumbersFor(**channel);
  if (!number_of) return std::unexpected(number_of.error());
  if (const auto uid = (*number_of)(user)) return *uid;
  return Fail(Code::kNotFound, fmt::format("no user of this system and no owner of a socket is called '{}'", user));
}

Error NotOpen(const v1::UnopenedReservation& each) {
  return {Code::kNotFound,
          fmt::format("job '{}' is reserved for uid {}, and not open: {}", each.name(), each.uid(), each.reason())};
}

// Where `name` is "OWNER/NAME" or "USER/NAME": that one's job, or why it is not open. Null: that one has none.
Result<const v1::Job*> FindOfOwner(const v1::ListJobsResponse& jobs, const std::string& name,
                                   const NumberOf& number_of) {
  const auto split = SplitAtOwner(name);
  if (!split) return nullptr;
  const auto& [owner, of_owner] = *split;
  const auto by_owner = [&](const auto& each) { return each.owner() == owner && each.name() == of_owner; };
  std::optional<uint32_t> uid;
  const auto by_user = [&](const auto& each) { return uid && each.uid() == *uid && each.name() == of_owner; };
  const auto find = [&](const auto& is_meant) -> Result<const v1::Job*> {
    for (const v1::Job& job : jobs.jobs()) {
      if (is_meant(job)) return &job;
    }
    for (const v1::UnopenedReservation& each : jobs.unopened_reservations()) {
      if (is_meant(each)) return std::unexpected(NotOpen(each));
    }
    for (const v1::StoredManifest& each : jobs.stored_manifests()) {
      if (!is_meant(each)) continue;
      return Fail(Code::kNotFound,
                  fmt::format("job '{}' of uid {} is persisted, and not open: tierctl job list has what is known of it",
                              each.name(), each.uid()));
    }
    return nullptr;
  };
  const auto of_name = find(by_owner);
  if (!of_name || *of_name != nullptr) return of_name;
  uid = number_of(owner);
  return find(by_user);
}

bool LeavesSome(const v1::Job& job, bool purge) { return job.named() && job.persisted() && !purge; }
// What a job that is named persisted outlives it; how much of its bytes there that is only the daemon knows.
uint64_t FreedOnSsd(const v1::Job& job, bool purge) { return LeavesSome(job, purge) ? 0 : job.ssd_bytes(); }

// The job that is meant, or why none is. The outer error: the daemon did not tell its jobs.
Result<Result<v1::Job>> AskForJob(const control_client::Channel& channel, const std::string& name, bool with_token) {
  v1::ListJobsResponse answer;
  if (auto listed = channel.CallPages(&Stub::ListJobs, WithTokens(with_token), &answer); !listed)
    return std::unexpected(listed.error());
  // Whom the part before a '/' may name: not asked for other names.
  const Result<NumberOf> number_of = SplitAtOwner(name) ? NumbersFor(channel) : Result<NumberOf>(UserNumber);
  if (!number_of) return std::unexpected(number_of.error());
  const auto job = FindJob(answer, name, IsForAdministrators(channel), *number_of);
  return job ? Result<v1::Job>(**job) : std::unexpected(job.error());
}

// The open job that is meant. Without a name: none is, and the daemon knows what to say of that.
Result<v1::Job> FindLive(const control_client::Channel& channel, const std::string& name) {
  auto asked = AskForJob(channel, name, false);
  if (!asked) return std::unexpected(asked.error());
  return *asked ? **asked : v1::Job();
}

// As FindLive, and gives a process that is about to leave a moment for it: who closed a connection just now may be
// listed still.
Result<v1::Job> FindWithoutProcesses(const control_client::Channel& channel, const std::string& name) {
  const auto end = std::chrono::steady_clock::now() + kLeaving;
  for (;;) {
    auto job = FindLive(channel, name);
    if (!job || job->sessions().empty() || std::chrono::steady_clock::now() >= end) return job;
    std::this_thread::sleep_for(kPoll);
  }
}

Json WithoutPageToken(Json document) {
  document.erase("next_page_token");
  return document;
}

}  // namespace

Result<JobChange> ChangeOf(const JobWords& words) {
  JobChange change{.name = words.name};
  struct Asked {
    const char* option;
    const std::string& text;
    std::optional<uint64_t>* bytes;
  };
  for (const auto& [option, text, bytes] : {Asked{"--guarantee", words.guarantee, &change.guarantee_bytes},
                                            Asked{"--limit", words.limit, &change.limit_bytes},
                                            Asked{"--ssd-guarantee", words.ssd_guarantee, &change.ssd_guarantee_bytes},
                                            Asked{"--ssd-limit", words.ssd_limit, &change.ssd_limit_bytes}}) {
    if (text.empty()) continue;
    auto size = SizeArgument(option, text, "or as a number of bytes");
    if (!size) return std::unexpected(std::move(size.error()));
    *bytes = *size;
  }
  return change;
}

std::string RenderJobs(const v1::ListJobsResponse& answer, const OutputOptions& output) {
  const auto& jobs = answer.jobs();
  const auto bytes = [&jobs](const char* title, uint64_t (v1::Job::*figure)() const) {
    return MakeColumn(title, jobs, true, [figure](const v1::Job& job) { return HumanBytes((job.*figure)()); });
  };
  return RenderTable(
      {
          MakeColumn("JOB", jobs, false, [](const v1::Job& job) { return job.name(); }),
          MakeColumn("UID", jobs, true, [](const v1::Job& job) { return UserText(job.uid(), job.owner()); }),
          DroppedAs(6, MakeColumn("SESSIONS", jobs, true, SessionsText)),
          DroppedAs(1, MakeColumn("TENSORS", jobs, true,
                                  [](const v1::Job& job) { return std::to_string(job.tensor_count()); })),
          bytes("RAM", &v1::Job::ram_bytes),
          DroppedAs(2, bytes("LEASED", &v1::Job::leased_bytes)),
          DroppedAs(3, bytes("MAY HOLD", &v1::Job::share_bytes)),
          DroppedAs(4, bytes("DIRTY", &v1::Job::dirty_bytes)),
          bytes("SSD", &v1::Job::ssd_bytes),
          DroppedAs(5,
                    MakeColumn("STALLED", jobs, true,
                               [](const v1::Job& job) { return fmt::format("{:.2f} s", job.stall_seconds_total()); })),
      },
      output);
}

int ListJobs(const DaemonOptions& options, bool lost) {
  return AskJobs(options, false, [&](v1::ListJobsResponse answer) {
    if (lost) KeepLost(&answer);
    if (options.output.json) {
      PrintJson(WithoutPageToken(ToJson(answer)));
    } else {
      lost ? PrintLost(answer, options.output) : PrintJobs(answer, options.output);
    }
    return kExitOk;
  });
}

std::optional<uint32_t> UserNumber(const std::string& name) {
  const passwd* const entry = ::getpwnam(name.c_str());
  return entry == nullptr ? std::nullopt : std::optional<uint32_t>(entry->pw_uid);
}

// As the daemon finds it for the other verbs: the job of the owner that "UID/NAME" or "OWNER/NAME" names goes before
// one whose name looks like that, which an administrator never means.
Result<const v1::Job*> FindJob(const v1::ListJobsResponse& jobs, const std::string& name, bool admin,
                               const NumberOf& number_of) {
  const bool by_owner_alone = admin && NamesAnOwner(name, number_of);
  std::vector<const v1::Job*> found;
  for (const v1::Job& job : jobs.jobs()) {
    if (fmt::format("{}/{}", job.uid(), job.name()) == name) return &job;
    if (job.name() == name && !by_owner_alone) found.push_back(&job);
  }
  const auto of_owner = FindOfOwner(jobs, name, number_of);
  if (!of_owner || *of_owner != nullptr) return of_owner;
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    return Fail(Code::kInvalid, fmt::format("{} owners have a job '{}': write uid/{}", found.size(), name, name));
  }
  for (const v1::UnopenedReservation& each : jobs.unopened_reservations()) {
    const bool is_called_so = each.name() == name && !by_owner_alone;
    const bool is_meant = is_called_so || fmt::format("{}/{}", each.uid(), each.name()) == name;
    if (is_meant) return std::unexpected(NotOpen(each));
  }
  return Fail(Code::kNotFound,
              fmt::format("no job '{}' among the {} that you may see (tierctl job list)", name, jobs.jobs_size()));
}

int ShowJob(const DaemonOptions& options, const std::string& name, bool show_token) {
  const auto channel = Connect(options);
  if (!channel) return Explain(channel.error());
  const auto asked = AskForJob(**channel, name, show_token);
  if (!asked) return Explain(asked.error());
  return *asked ? ShowOneJob(options, **asked) : Explain(asked->error());
}

int ListJobNames(const DaemonOptions& options) {
  return AskJobs(options, false, [&](const v1::ListJobsResponse& answer) {
    std::map<std::string, int> owners;
    for (const v1::Job& job : answer.jobs()) ++owners[job.name()];
    std::vector<std::string> names;
    for (const v1::Job& job : answer.jobs()) {
      // An administrator's verbs take what stands before a '/' for an owner.
      const bool whole = owners[job.name()] > 1 || job.name().find('/') != std::string::npos;
      names.push_back(whole ? fmt::format("{}/{}", job.uid(), job.name()) : job.name());
    }
    std::ranges::sort(names);
    if (options.output.json) {
      PrintJson({{"names", names}});
      return kExitOk;
    }
    for (const std::string& name : names) fmt::print("{}\n", Printable(name));
    return kExitOk;
  });
}

int SetJob(const DaemonOptions& options, const JobChange& change) {
  v1::SetJobRequest request;
  request.set_name(change.name);
  if (change.guarantee_bytes) request.set_guarantee_bytes(*change.guarantee_bytes);
  if (change.limit_bytes) request.set_limit_bytes(*change.limit_bytes);
  if (change.ssd_guarantee_bytes) request.set_ssd_guarantee_bytes(*change.ssd_guarantee_bytes);
  if (change.ssd_limit_bytes) request.set_ssd_limit_bytes(*change.ssd_limit_bytes);
  return Ask<v1::SetJobResponse>(options, &Stub::SetJob, request,
                                 [&](const v1::SetJobResponse& answer) { return ShowOneJob(options, answer.job()); });
}

int OpenJob(const DaemonOptions& options, const JobChange& job, bool named, const std::optional<std::string>& user) {
  v1::OpenJobRequest request;
  request.set_name(job.name);
  request.set_mode(v1::OPEN_MODE_CREATE);
  request.set_named(named);
  if (user) {
    const auto uid = UidOf(options, *user);
    if (!uid) return Explain(uid.error());
    request.set_uid(*uid);
  }
  request.set_guarantee_bytes(job.guarantee_bytes.value_or(0));
  request.set_limit_bytes(job.limit_bytes.value_or(0));
  request.set_ssd_guarantee_bytes(job.ssd_guarantee_bytes.value_or(0));
  request.set_ssd_limit_bytes(job.ssd_limit_bytes.value_or(0));
  return Ask<v1::OpenJobResponse>(options, &Stub::OpenJob, request,
                                  [&](const v1::OpenJobResponse& answer) { return ShowOneJob(options, answer.job()); });
}

std::string StillAttachedText(const v1::Job& job, const std::string& name) {
  const bool one = job.sessions_size() == 1;
  return fmt::format(
      "job '{}' has {} attached: {}; removing it ends {} run: stop {} first, or tierctl job remove "
      "--force {}",
      name, base::Counted(job.sessions_size(), "process", "processes"), ProcessesText(job), one ? "its" : "their",
      one ? "it" : "them", name);
}

std::string RemovedText(const v1::Job& job, const std::string& name, bool purge) {
  std::string text = fmt::format("removed job {}", name);
  if (!job.sessions().empty()) {
    text += fmt::format("; ended the {} of {}", job.sessions_size() == 1 ? "session" : "sessions",
                        base::Counted(job.sessions_size(), "process", "processes"));
    text += ": " + ProcessesText(job);
  }
  const uint64_t ssd_bytes = FreedOnSsd(job, purge);
  // Windows as a whole: its tensors may have taken less of them.
  if (job.held_bytes() != 0) text += fmt::format("; gave back windows of {}", HumanBytes(job.held_bytes()));
  if (ssd_bytes != 0) text += fmt::format("; freed {} on SSD", HumanBytes(ssd_bytes));
  if (LeavesSome(job, purge)) text += "; what it persisted stays on SSD (--purge deletes it)";
  return text;
}

int RemoveJob(const DaemonOptions& options, const std::string& name, const Removal& removal) {
  const auto channel = Connect(options);
  if (!channel) return Explain(channel.error());
  const auto live = removal.force ? FindLive(**channel, name) : FindWithoutProcesses(**channel, name);
  if (!live) return Explain(live.error());
  if (!removal.force && !live->sessions().empty()) {
    fmt::print(stderr, "tierctl: {}\n", Printable(StillAttachedText(*live, name)));
    return kExitRefused;
  }
  v1::CloseJobRequest request;
  request.set_name(name);
  request.set_purge(removal.purge);
  request.set_unless_attached(!removal.force);
  v1::CloseJobResponse ignored;
  if (const auto closed = (*channel)->Call(&Stub::CloseJob, request, &ignored); !closed) return Explain(closed.error());
  if (!options.output.json) {
    fmt::print("{}\n", Printable(RemovedText(*live, name, removal.purge)));
    return kExitOk;
  }
  Json sessions = Json::array();
  for (const v1::JobSession& session : live->sessions()) sessions.push_back(ToJson(session));
  PrintJson({{"removed", name},
             {"sessions", std::move(sessions)},
             {"ram_bytes", live->held_bytes()},
             {"ssd_bytes", FreedOnSsd(*live, removal.purge)}});
  return kExitOk;
}

}  // namespace tier::tierctl
