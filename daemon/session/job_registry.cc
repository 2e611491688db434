#include "daemon/session/job_registry.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"

namespace tier::session {
namespace {

using proto::OpenMode;

// Says which run it belongs to.
bool NamesRun(const OpenJobRequest& request) { return !request.token.empty() || !request.launch.empty(); }

std::string NoJobAmong(const std::string& name, size_t visible) {
  return fmt::format("no job '{}' among the {} that you may see (tierctl job list)", name, visible);
}

}  // namespace

std::optional<std::pair<uint32_t, std::string>> ParseQualifiedName(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  uint32_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + slash, uid);
  if (error != std::errc() || end != text.data() + slash) return std::nullopt;
  if (text.front() == '0' && slash != 1) return std::nullopt;  // One user, one way to write it.
  return std::pair(uid, text.substr(slash + 1));
}

std::optional<std::pair<uint32_t, std::string>> QualifiedFor(const Caller& caller, const std::string& name) {
  auto qualified = ParseQualifiedName(name);
  if (qualified && !caller.admin && qualified->first != caller.uid) return std::nullopt;
  return qualified;
}

std::string Job::EngineKey() const { return fmt::format("{}/{}", uid, name); }

Result<Admission> JobRegistry::Admit(uint32_t uid, const OpenJobRequest& request, base::TimePoint now,
                                     std::optional<tiering::QuotaLimit> jobs_max) {
  if (uid == kUnknownUid) return Fail(Code::kDenied, "the kernel does not say who opens this job");
  if (options_.only_uid && uid != *options_.only_uid) {
    return Fail(Code::kDenied,
                fmt::format("this private daemon serves uid {} alone, and uid {} asks; run a system daemon "
                            "(systemctl start tierd) for several users",
                            *options_.only_uid, uid));
  }
  if (uid == kOverflowUid && request.token.empty()) {
    return Fail(Code::kDenied, fmt::format("uid {} stands for every user of another namespace: it needs a job token "
                                           "(TIERD_JOB_TOKEN)",
                                           uid));
  }
  if (!options_.persistent && (request.named || request.resumes())) {
    return Fail(Code::kDenied,
                "named jobs and resume need a daemon that keeps its data: set daemon.data_directory (tierd.connect: "
                "data_directory=)");
  }
  const Job* job = request.name.empty() ? nullptr : FindOwned(uid, request.name);
  if (job == nullptr) {
    if (request.mode == OpenMode::kJoin) {
      return Fail(Code::kNotFound, fmt::format("uid {} has no job '{}' to join", uid, request.name));
    }
    return AdmitNew(uid, request, request.resumes(),
                    jobs_max.value_or(tiering::QuotaLimit{.most = options_.jobs_per_uid_max}));
  }
  if (auto ok = CheckMode(*job, request); !ok) return std::unexpected(std::move(ok.error()));
  Admission admission{.job = *job};
  if (job->members.empty()) {
    admission.job.resumed = request.resumes();
    admission.job.resumed_ranks.clear();
  }
  if (BeginsNewRun(*job, request, now)) {
    if (NamesRun(request)) {  // What the run before handed out opens the job no more.
      admission.job.token = request.token.empty() ? tokens_.MakeToken() : request.token;
      admission.job.launch = request.launch;
    }
    admission.job.world_size = request.world_size;
    return admission;
  }
  if (auto ok = CheckToken(*job, request); !ok) return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckWorld(*job, request); !ok) return std::unexpected(std::move(ok.error()));
  return admission;
}

// Whether a job that is there may be opened in this way.
Status JobRegistry::CheckMode(const Job& job, const OpenJobRequest& request) {
  if (request.owner) {
    return Fail(
        Code::kAlreadyExists,
        fmt::format("uid {} has a job '{}' already, whose terms stay as they are: change them (tierctl job set), "
                    "or remove it first (tierctl job remove, with --force while it runs)",
                    job.uid, job.name));
  }
  if (request.mode == OpenMode::kCreate && !AdmitsFirstRun(job, request)) {
    return Fail(Code::kAlreadyExists,
                fmt::format("job '{}' is live with {}; attach to it{}, or remove it first (tierctl job remove {}{})",
                            job.name, base::Counted(job.members.size(), "session"),
                            job.named && job.members.empty() ? ", go on with it (mode resume_or_create)" : "",
                            job.members.empty() ? "" : "--force ", job.name));
  }
  if (request.resumes() && StartedByAttach(job, request)) {
    return Fail(
        Code::kNotFound,
        fmt::format("a rank that came before started this run of job '{}' by mode attach: attach to it too", job.name));
  }
  const bool for_one_run = job.reserved && !job.named;
  if (request.mode == OpenMode::kResume && for_one_run) {
    return Fail(Code::kNotFound,
                fmt::format("job '{}' is reserved for uid {} and for one run, which can resume nothing: use mode "
                            "resume_or_create, or attach",
                            job.name, job.uid));
  }
  if (request.resumes() && !for_one_run && !MayResume(job, request)) {
    return Fail(Code::kAlreadyExists,
                fmt::format("job '{}' is live with {}; resume takes a named job without any, or one that "
                            "another rank of the same run has just resumed",
                            job.name, base::Counted(job.members.size(), "session")));
  }
  return {};
}

// By the job's token, or, of a process without one, by the launch. The uid is the job's: jobs are found by uid and
// name.
bool JobRegistry::IsOfSameRun(const Job& job, const OpenJobRequest& request) {
  if (!request.token.empty()) return SameToken(job.token, request.token);
  return !request.launch.empty() && request.launch == job.launch;
}

// Ranks come in any order, and all of them say what their run wants. One that was there and comes again would meet the
// others' progress with its own state of the manifest.
bool JobRegistry::MayResume(const Job& job, const OpenJobRequest& request) {
  if (!job.named) return false;
  if (job.members.empty()) return true;
  if (!job.resumed || request.rank < 0 || !IsOfSameRun(job, request)) return false;
  return std::ranges::find(job.resumed_ranks, request.rank) == job.resumed_ranks.end();
}

// The same script in each rank, on its first launch: the first rank found nothing to resume, and attached.
bool JobRegistry::StartedByAttach(const Job& job, const OpenJobRequest& request) {
  const auto is_there = [&](const Member& member) { return member.rank == request.rank; };
  return job.named && !job.resumed && !job.members.empty() && request.rank >= 0 && IsOfSameRun(job, request) &&
         std::ranges::none_of(job.members, is_there);
}

size_t JobRegistry::CountOf(uint32_t uid) const {
  return static_cast<size_t>(
      std::ranges::count_if(jobs_, [uid](const auto& entry) { return entry.second.uid == uid; }));
}

Result<Admission> JobRegistry::AdmitNew(uint32_t uid, const OpenJobRequest& request, bool resume,
                                        const tiering::QuotaLimit& jobs_max) {
  TIER_CHECK(request.name.empty() || FindOwned(uid, request.name) == nullptr, "job '{}' is there", request.name);
  const size_t owned = CountOf(uid);
  if (owned >= jobs_max.most) {
    return Fail(Code::kDenied,
                fmt::format("uid {} has {}, the limit ({}) is {}", uid, base::Counted(owned, "job"),
                            tiering::DescribeOrigin(jobs_max.origin, "jobs.max_jobs_per_uid"), jobs_max.most));
  }
  Admission admission{.job = {}, .created = true, .resume = resume};
  Job& job = admission.job;
  job.id = static_cast<tiering::JobId>(++last_id_);
  job.uid = uid;
  job.name = request.name;
  while (job.name.empty() || (request.name.empty() && FindOwned(uid, job.name) != nullptr))
    job.name = tokens_.MakeJobName();
  job.token = request.token.empty() ? tokens_.MakeToken() : request.token;
  job.launch = request.launch;
  job.named = request.named || resume;
  job.reserved = request.owner.has_value();
  job.from_manifest = resume;
  job.resumed = resume;
  job.world_size = request.world_size;
  return admission;
}

// Without live sessions its owner, whom the kernel names, may come back to a named job.
bool JobRegistry::IsOpenToOwner(const Job& job, const OpenJobRequest& request) {
  return job.named && job.members.empty() && job.uid != kOverflowUid && request.mode != OpenMode::kJoin;
}

// Who reserves a job twice has made a mistake.
bool JobRegistry::AdmitsFirstRun(const Job& job, const OpenJobRequest& request) {
  TIER_CHECK(!job.reserved || job.members.empty(), "job {} is reserved, with {} sessions", job.name,
             job.members.size());
  return job.reserved && !request.owner && job.uid != kOverflowUid;
}

// A next run (a restart by torchrun or Slurm) has another token or launch, and may have another world: its first rank
// brings both. Not while the job waits for the ranks of a run that its launcher has opened it for.
bool JobRegistry::BeginsNewRun(const Job& job, const OpenJobRequest& request, base::TimePoint now) {
  if (AdmitsFirstRun(job, request)) return true;
  if (!IsOpenToOwner(job, request) || IsOfSameRun(job, request)) return false;
  return !job.awaited_until || now >= *job.awaited_until;
}

Status JobRegistry::CheckToken(const Job& job, const OpenJobRequest& request) const {
  if (IsOfSameRun(job, request)) return {};
  if (!NamesRun(request) && IsOpenToOwner(job, request)) return {};  // The job's token stays valid.
  if (NamesRun(request) && job.awaited_until) {
    return Fail(Code::kDenied, fmt::format("this is not the token of job '{}', which was opened without a session and "
                                           "waits up to {} s for processes with its token (TIERD_JOB_TOKEN)",
                                           job.name, kUnattachedJobLifetime / std::chrono::seconds(1)));
  }
  if (!request.token.empty()) return Fail(Code::kDenied, fmt::format("this is not the token of job '{}'", job.name));
  if (!request.launch.empty()) {
    return Fail(Code::kDenied, fmt::format("job '{}' belongs to another launch, with {}: join it with its "
                                           "token (TIERD_JOB_TOKEN), or choose another name",
                                           job.name, base::Counted(job.members.size(), "session")));
  }
  if (request.mode == OpenMode::kJoin) {
    return Fail(Code::kDenied, fmt::format("joining job '{}' needs its token (TIERD_JOB_TOKEN)", job.name));
  }
  return Fail(Code::kAlreadyExists, fmt::format("job '{}' is live with {}; pass its token (TIERD_JOB_TOKEN) to join "
                                                "it, or choose another name",
                                                job.name, base::Counted(job.members.size(), "session")));
}

Status JobRegistry::CheckWorld(const Job& job, const OpenJobRequest& request) const {
  if (request.world_size == 0) return {};
  // Opened by a launcher that did not say how large the world is, or all ranks are gone: the first rank says.
  const bool open = std::all_of(job.members.begin(), job.members.end(), [](const Member& m) { return m.rank < 0; });
  if (job.world_size != request.world_size && !(open && job.world_size == 0)) {
    return Fail(Code::kAlreadyExists, fmt::format("job '{}' has world size {}, this process says {}", job.name,
                                                  job.world_size, request.world_size));
  }
  for (const Member& member : job.members) {
    if (member.rank != request.rank) continue;
    return Fail(Code::kAlreadyExists, fmt::format("rank {} of job '{}' is present already (session {})", request.rank,
                                                  job.name, static_cast<uint64_t>(member.session)));
  }
  return {};
}

const Job& JobRegistry::Commit(const Admission& admission, const OpenJobRequest& request,
                               std::optional<tiering::SessionId> session, base::TimePoint now) {
  const auto [place, inserted] = jobs_.try_emplace(admission.job.id, admission.job);
  TIER_CHECK(inserted == admission.created, "job {} created {} inserted {}", admission.job.name, admission.created,
             inserted);
  Job& job = place->second;
  const bool was_reserved = !inserted && job.reserved;
  job.token = admission.job.token;
  job.launch = admission.job.launch;
  job.world_size = admission.job.world_size;
  job.resumed = admission.job.resumed;
  job.resumed_ranks = admission.job.resumed_ranks;
  const bool came = std::ranges::find(job.resumed_ranks, request.rank) != job.resumed_ranks.end();
  if (job.resumed && session && request.rank >= 0 && !came) job.resumed_ranks.push_back(request.rank);
  TIER_CHECK(!job.name.empty() && IsToken(job.token), "job {} name '{}'", static_cast<uint64_t>(job.id), job.name);
  by_name_.insert_or_assign(std::pair(job.uid, job.name), job.id);
  TIER_CHECK(by_name_.size() == jobs_.size(), "{} names of {} jobs", by_name_.size(), jobs_.size());
  if (session) {
    const bool member = std::any_of(job.members.begin(), job.members.end(),
                                    [&session](const Member& m) { return m.session == *session; });
    TIER_CHECK(!member, "session {} is in job {} already", static_cast<uint64_t>(*session), job.name);
    job.members.push_back({.session = *session, .rank = request.rank, .client_pid = request.client_pid});
    SetExpiry(&job, std::nullopt);
    job.reserved = false;
    job.awaited_until.reset();
    if (request.world_size > 0) job.world_size = request.world_size;
  } else if (job.reserved) {
    SetExpiry(&job, std::nullopt);  // Its owner's step may wait for others in the queue of the scheduler.
  } else if (inserted && !job.named) {
    SetExpiry(&job, now + kUnattachedJobLifetime);
  } else if (job.named && job.members.empty()) {
    job.awaited_until = now + kUnattachedJobLifetime;
  }
  if (job.reserved != was_reserved) ++reserved_version_;
  return job;
}

std::optional<tiering::JobId> JobRegistry::Leave(tiering::JobId id, tiering::SessionId session) {
  const auto place = jobs_.find(id);
  if (place == jobs_.end()) return std::nullopt;  // Closed under its sessions.
  Job& job = place->second;
  const auto in_world = [](const Member& m) { return m.rank >= 0; };
  const bool had_world = std::ranges::any_of(job.members, in_world);
  const size_t left = std::erase_if(job.members, [session](const Member& m) { return m.session == session; });
  TIER_CHECK(left == 1, "session {} is {} times in job {}", static_cast<uint64_t>(session), left, job.name);
  // The world goes with its last rank: those who come after an elastic restart may be more or fewer.
  if (had_world && std::ranges::none_of(job.members, in_world)) job.world_size = 0;
  if (job.members.empty() && !job.named) return id;
  return std::nullopt;
}

void JobRegistry::Remove(tiering::JobId id) {
  const auto place = jobs_.find(id);
  TIER_CHECK(place != jobs_.end(), "job {}", static_cast<uint64_t>(id));
  const size_t names = by_name_.erase({place->second.uid, place->second.name});
  TIER_CHECK(names == 1, "job {} has {} names", place->second.name, names);
  if (place->second.reserved) ++reserved_version_;
  SetExpiry(&place->second, std::nullopt);
  jobs_.erase(place);
  TIER_CHECK(by_name_.size() == jobs_.size(), "{} names of {} jobs", by_name_.size(), jobs_.size());
}

void JobRegistry::SetExpiry(Job* job, std::optional<base::TimePoint> expires) {
  if (job->expires) expiries_.erase({*job->expires, job->id});
  job->expires = expires;
  if (expires) expiries_.emplace(*expires, job->id);
}

std::vector<tiering::JobId> JobRegistry::Expired(base::TimePoint now) const {
  std::vector<tiering::JobId> expired;
  for (const auto& [expires, id] : expiries_) {
    if (expires > now) break;
    expired.push_back(id);
  }
  return expired;
}

std::optional<base::TimePoint> JobRegistry::NextExpiry() const {
  if (expiries_.empty()) return std::nullopt;
  return expiries_.begin()->first;
}

const Job* JobRegistry::Find(tiering::JobId id) const {
  const auto place = jobs_.find(id);
  return place == jobs_.end() ? nullptr : &place->second;
}

const Job* JobRegistry::FindOwned(uint32_t uid, const std::string& name) const {
  const auto place = by_name_.find({uid, name});
  if (place == by_name_.end()) return nullptr;
  const Job* job = Find(place->second);
  TIER_CHECK(job != nullptr && job->uid == uid && job->name == name, "name '{}' of uid {}", name, uid);
  return job;
}

bool JobRegistry::MaySee(const Caller& caller, uint32_t uid, const std::string& token) {
  if (caller.admin) return true;
  if (!caller.token.empty()) return SameToken(caller.token, token);
  return MaySeeOf(caller, uid);
}

bool JobRegistry::MaySeeOf(const Caller& caller, uint32_t uid) {
  if (caller.admin) return true;
  return caller.token.empty() && caller.uid == uid && caller.uid != kOverflowUid && caller.uid != kUnknownUid;
}

Result<const Job*> JobRegistry::FindFor(const Caller& caller, const std::string& name) const {
  if (const auto qualified = QualifiedFor(caller, name)) {
    const Job* const job = FindOwned(qualified->first, qualified->second);
    if (job != nullptr && MaySee(caller, *job)) return job;
    if (caller.admin) return NoJobOf(qualified->first, name);  // Others may have one that is called so.
  }
  std::vector<const Job*> found;
  bool owned_by_caller = false;
  for (const auto& [id, job] : jobs_) {
    if (job.name != name) continue;
    if (MaySee(caller, job)) found.push_back(&job);
    owned_by_caller |= job.uid == caller.uid;
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    return Fail(Code::kInvalid, fmt::format("{} owners have a job '{}': write uid/{}", found.size(), name, name));
  }
  if (owned_by_caller) return Fail(Code::kDenied, fmt::format("this is not the token of job '{}'", name));
  const auto visible = std::ranges::count_if(jobs_, [&](const auto& each) { return MaySee(caller, each.second); });
  return Fail(Code::kNotFound, NoJobAmong(name, static_cast<size_t>(visible)));
}

// Any user may call a job "1300/train": who means uid 1300's must not get that one.
Result<const Job*> JobRegistry::NoJobOf(uint32_t uid, const std::string& name) const {
  std::string why = NoJobAmong(name, jobs_.size());
  const auto called_so = std::ranges::find_if(jobs_, [&name](const auto& each) { return each.second.name == name; });
  if (called_so != jobs_.end()) {
    TIER_CHECK(called_so->second.EngineKey() != name, "job {} of uid {} is there", name, uid);
    why += fmt::format("; {} names one of another user that is called so", called_so->second.EngineKey());
  }
  return Fail(Code::kNotFound, why);
}

}  // namespace tier::session
