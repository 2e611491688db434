#include "daemon/session/job_service.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "daemon/session/job_words.h"

namespace tier::session {

Result<const Job*> JobService::Open(uint32_t uid, const OpenJobRequest& request,
                                    std::optional<tiering::SessionId> session, base::TimePoint now) {
  if (Status taken = CheckAdmission(); !taken) return std::unexpected(std::move(taken.error()));
  if (Status owner = CheckOwner(uid); !owner) return std::unexpected(std::move(owner.error()));
  if (request.owner) {
    if (Status room = CheckRoomToReserve(uid, request.name); !room) return std::unexpected(std::move(room.error()));
  }
  auto opened = OpenAs(uid, AsReserved(uid, request), session, now);
  if (!opened && !request.owner && unopened_.Find(uid, request.name) != nullptr &&
      (opened.error().code == Code::kNoMemory || opened.error().code == Code::kNoSpace)) {
    opened.error().message += fmt::format(
        "; job '{0}' is reserved for uid {1}: it gets what was reserved unless other terms are named, or an "
        "administrator removes the reservation (tierctl job remove {1}/{0})",
        request.name, uid);
  }
  return opened;
}

Status JobService::CheckAdmission() const {
  if (drain_reason_)
    return Fail(Code::kDisconnected, fmt::format("{}: no more sessions and jobs are taken", *drain_reason_));
  if (closed_reason_) return Fail(Code::kDenied, *closed_reason_);
  return {};
}

// A connection may be older than the end of its owner's name.
Status JobService::CheckOwner(uint32_t uid) const {
  if (!IsOwnerUid(uid) || (owners_ != nullptr && owners_->IsOwner(uid))) return {};
  return std::unexpected(NoOwnerRefusal(uid));
}

Status JobService::CheckRoomToReserve(uint32_t uid, const std::string& name) const {
  if (unopened_.Find(uid, name) != nullptr) return {};  // It is counted.
  const auto is_reserved = [](const auto& job) { return job.second.reserved; };
  const auto open = static_cast<size_t>(std::ranges::count_if(registry_.jobs(), is_reserved));
  if (open + unopened_.size() < kReservationsMax) return {};
  return Fail(Code::kNoMemory, fmt::format("{} jobs are reserved, the limit: remove those that are not needed (tierctl "
                                           "job list)",
                                           open + unopened_.size()));
}

// The first run of a job that is reserved and not open gets what was reserved.
OpenJobRequest JobService::AsReserved(uint32_t uid, const OpenJobRequest& request) const {
  OpenJobRequest wanted = request;
  const Reservation* const reserved = request.owner ? nullptr : unopened_.Find(uid, request.name);
  if (reserved == nullptr) return wanted;
  const JobTerms terms = Filled(TermsOf(request), reserved->terms);
  wanted.named |= reserved->named;
  wanted.guarantee_bytes = terms.guarantee_bytes;
  wanted.limit_bytes = terms.limit_bytes;
  wanted.ssd_guarantee_bytes = terms.ssd_guarantee_bytes;
  wanted.ssd_limit_bytes = terms.ssd_limit_bytes;
  return wanted;
}

Result<const Job*> JobService::OpenAs(uint32_t uid, const OpenJobRequest& request,
                                      std::optional<tiering::SessionId> session, base::TimePoint now) {
  const auto quota = quotas_ == nullptr ? std::nullopt : std::optional(quotas_->QuotaOf(uid));
  auto admission = registry_.Admit(uid, request, now, quota ? std::optional(quota->jobs) : std::nullopt);
  if (!admission) return std::unexpected(admission.error());
  const Job& asked = admission->job;
  if (request.mode == proto::OpenMode::kResumeOrCreate && admission->created && !HasManifest(asked)) {
    admission->resume = admission->job.from_manifest = false;
  }
  if (request.resumes() && !admission->created && asked.members.empty() && !IsOpening(asked.id)) {
    const tiering::JobCounters has = engine_.Counters(asked.id);
    if (has.persisting) return Fail(Code::kTimeout, fmt::format("job {} is being persisted; try again", asked.name));
    if (has.persisted || (asked.reserved && !asked.named)) return Reopen(uid, request, asked, session, now);
    if (Status may = CheckReservation(asked, request); !may) return std::unexpected(std::move(may.error()));
  }
  if (admission->created) {
    if (auto opened = OpenInEngine(*admission, request, quota); !opened)
      return std::unexpected(std::move(opened.error()));
  } else if (quota) {
    engine_.SetQuota(uid, quota->bytes);  // Its user may be in other groups by now.
  }
  if (admission->resume) opening_.try_emplace(asked.id);
  if (session && !IsOpening(asked.id)) {
    if (auto opened = engine_.OpenSession(*session, asked.id); !opened) {
      if (admission->created) engine_.CloseJob(asked.id, opened.error().message, false);
      return std::unexpected(std::move(opened.error()));
    }
  }
  const Job& job = registry_.Commit(*admission, request, session, now);
  TIER_CHECK(job.id == asked.id, "opened job {}, committed {}", static_cast<uint64_t>(asked.id),
             static_cast<uint64_t>(job.id));
  if (admission->created && !IsOpening(job.id)) NoteOpened(job);
  return &job;
}

// Also a damaged one, which a resume refuses. While the job is being closed there may be none yet: then the engine
// opens it in neither way.
bool JobService::HasManifest(const Job& job) const {
  const std::string key = job.EngineKey();
  const auto first = engine_.StoredManifests(key, 1);
  TIER_CHECK(first.size() <= 1, "{} manifests where one was asked for", first.size());
  return !first.empty() && first.front().key == key;
}

Status JobService::OpenInEngine(const Admission& admission, const OpenJobRequest& request,
                                const std::optional<ResolvedQuota>& quota) {
  const Job& job = admission.job;
  TIER_CHECK(admission.created, "job {} is open", job.name);
  const JobTerms own = TermsOf(request);
  const JobTerms terms = request.resumes() ? kept_.ForResume(job.uid, request) : own;
  Status opened =
      engine_.OpenJob(job.id, {.key = job.EngineKey(),
                               .uid = job.uid,
                               .guarantee_bytes = terms.guarantee_bytes,
                               .limit_bytes = terms.limit_bytes,
                               .ssd_guarantee_bytes = terms.ssd_guarantee_bytes,
                               .ssd_limit_bytes = terms.ssd_limit_bytes,
                               .quota = quota ? std::optional(quota->bytes) : std::nullopt,
                               .named = job.named,
                               .resume = admission.resume,
                               .replace_existing = request.mode == proto::OpenMode::kCreate && !job.reserved});
  const bool not_given = !opened && (opened.error().code == Code::kNoMemory || opened.error().code == Code::kNoSpace);
  if (not_given && terms != own) {
    opened.error().message +=
        fmt::format("; job '{}' had these terms before, and is resumed with them unless others are named", job.name);
  }
  return opened;
}

void JobService::NoteOpened(const Job& job) {
  if (job.named) kept_.Drop(job.uid, job.name);
  (void)unopened_.Remove(job.uid, job.name);  // Its first run has come, or it is reserved again.
  // Else its trainer would learn of it hours later, at its first persist.
  const bool cannot_persist = job.named && !registry_.has_ssd();
  events_.Emit("job_opened", &job,
               fmt::format("job '{}' of uid {} opened{}", job.name, job.uid,
                           cannot_persist ? "; it is named, and cannot persist: this daemon has no SSD tier" : ""));
}

void JobService::WhenOpen(tiering::JobId job, Opened done) {
  const auto opening = opening_.find(job);
  if (opening == opening_.end()) return done(Status{});
  opening->second.push_back(std::move(done));
}

void JobService::OnJobOpened(tiering::JobId id, const Status& status) {
  const Job* const job = registry_.Find(id);
  TIER_CHECK(job != nullptr && IsOpening(id), "job {} was not being resumed", static_cast<uint64_t>(id));
  if (status) {
    NoteOpened(*job);
  } else {
    registry_.Remove(id);  // The engine has closed it.
  }
  EndOpening(id, status);
}

void JobService::EndOpening(tiering::JobId job, const Status& status) {
  const auto opening = opening_.extract(job);
  if (opening.empty()) return;
  for (const Opened& done : opening.mapped()) done(status);
}

// A reservation is no job that ran: there is nothing in it to go on with.
Status JobService::CheckReservation(const Job& job, const OpenJobRequest& request) const {
  TIER_CHECK(job.members.empty(), "job {} has {} sessions", job.name, job.members.size());
  if (!job.reserved || request.mode != proto::OpenMode::kResume) return {};
  return Fail(Code::kNotFound,
              fmt::format("job '{}' is reserved for uid {}, and has persisted nothing: there is nothing "
                          "to resume; use mode resume_or_create, or attach",
                          job.name, job.uid));
}

// What its sessions left in memory is newer than its manifest, or gone with them: the manifest is one whole, and what
// resume promises. A job that was reserved for one run becomes one that persists, with its terms. While the old job's
// tensors are being freed the engine answers TIMEOUT.
Result<const Job*> JobService::Reopen(uint32_t uid, const OpenJobRequest& request, const Job& old,
                                      std::optional<tiering::SessionId> session, base::TimePoint now) {
  TIER_CHECK((old.named || old.reserved) && old.members.empty(), "job {} has {} sessions", old.name,
             old.members.size());
  const tiering::JobCounters has = engine_.Counters(old.id);  // Without sessions its guarantee is what it was given.
  if (old.reserved) {
    // Until the run is open: it may be refused.
    unopened_.Add(ReservationOf(old), now + kReservationRetry, "its first run has not resumed it yet");
  } else {
    kept_.Keep(old.uid, old.name,
               {.guarantee_bytes = has.guarantee_bytes,
                .limit_bytes = has.limit_bytes,
                .ssd_guarantee_bytes = has.ssd_guarantee_bytes,
                .ssd_limit_bytes = has.ssd_limit_bytes});
  }
  Close(old.id, old.named ? "it is resumed from its manifest" : "its first run persists: it is opened again", false);
  return OpenAs(uid, AsReserved(uid, request), session, now);
}

void JobService::Leave(const LeavingSession& leaving, const std::string& reason) {
  const Job* const found = registry_.Find(leaving.job);
  const std::optional<Job> job = found == nullptr ? std::nullopt : std::optional<Job>(*found);
  const bool ends_job = registry_.Leave(leaving.job, leaving.session).has_value();
  if (ends_job) registry_.Remove(leaving.job);
  engine_.EndSession(leaving.session, leaving.code, reason, ends_job ? std::optional(leaving.job) : std::nullopt);
  if (!job) return;  // It was closed under its sessions.
  if (leaving.announced) {
    events_.Emit(leaving.code == Code::kRevoked ? "session_revoked" : "session_ended", &*job,
                 fmt::format("session {} of job '{}'{} ended: {}", static_cast<uint64_t>(leaving.session), job->name,
                             ProcessText(*job, leaving.session), reason));
  }
  if (ends_job) EmitClosed(*job, fmt::format("its last session ended: {}", reason));
}

void JobService::Close(tiering::JobId id, const std::string& reason, bool purge) {
  const Job* found = registry_.Find(id);
  TIER_CHECK(found != nullptr, "job {}", static_cast<uint64_t>(id));
  const Job job = *found;
  // Out of the registry first: sessions that the engine ends meanwhile find no job to leave.
  registry_.Remove(id);
  TIER_CHECK(registry_.Find(id) == nullptr, "job {} is still there", static_cast<uint64_t>(id));
  engine_.CloseJob(id, reason, purge);
  if (purge && job.named) kept_.Drop(job.uid, job.name);
  EndOpening(id, Fail(Code::kRevoked, fmt::format("job '{}' was closed before it was resumed: {}", job.name, reason)));
  EmitClosed(job, reason);
}

void JobService::EmitClosed(const Job& job, const std::string& reason) {
  events_.Emit("job_closed", &job, fmt::format("job '{}' of uid {} closed: {}", job.name, job.uid, reason));
}

Status JobService::DeleteStoredManifest(uint32_t uid, const std::string& name, const std::string& reason) {
  const Job gone{.uid = uid, .name = name, .named = true};
  if (Status deleted = engine_.DeleteStoredManifest(gone.EngineKey()); !deleted) return deleted;
  kept_.Drop(uid, name);
  events_.Emit("job_purged", &gone,
               fmt::format("what job '{}' of uid {} persisted is being removed {}", name, uid, reason));
  return {};
}

Status JobService::PurgeDevice(const std::string& uuid, const std::string& reason, tiering::EnginePort::Purged done) {
  TIER_CHECK(done != nullptr, "a purge of device {} that is not answered", uuid);
  return engine_.PurgeDevice(uuid, [this, uuid, reason, done](const Result<std::vector<std::string>>& keys) {
    if (!keys) return done(keys);
    events_.Emit("device_purged", nullptr,
                 fmt::format("the missing device {} was given up {}, and what {} persisted on it", uuid, reason,
                             base::Counted(keys->size(), "job")));
    for (const std::string& key : *keys) {
      const auto owner = ParseQualifiedName(key);
      if (!owner) continue;
      kept_.Drop(owner->first, owner->second);
      const Job gone{.uid = owner->first, .name = owner->second, .named = true};
      events_.Emit("job_purged", &gone,
                   fmt::format("what job '{}' of uid {} persisted was given up with the missing device {}", gone.name,
                               gone.uid, uuid));
    }
    done(keys);
  });
}

std::set<uint32_t> JobService::Owners() const {
  std::set<uint32_t> uids;
  for (const auto& [id, job] : registry_.jobs()) uids.insert(job.uid);
  TIER_CHECK(!uids.contains(kUnknownUid), "a job of {} has no owner", kUnknownUid);
  return uids;
}

Status JobService::SetJob(tiering::JobId id, const tiering::TermsChange& change) {
  const Job* const job = registry_.Find(id);
  TIER_CHECK(job != nullptr, "job {}", static_cast<uint64_t>(id));
  const Status set = engine_.SetJob(id, change);
  if (set && job->reserved) ++reserved_terms_version_;
  return set;
}

ReservationList JobService::Reservations() const {
  ReservationList list{.version = reservations_version(), .reservations = unopened_.List()};
  for (const auto& [id, job] : registry_.jobs()) {
    if (job.reserved) list.reservations.push_back(ReservationOf(job));
  }
  TIER_CHECK(list.reservations.size() <= kReservationsMax, "{} jobs are reserved", list.reservations.size());
  std::ranges::sort(list.reservations, {}, [](const Reservation& each) { return std::tie(each.uid, each.name); });
  return list;
}

Reservation JobService::ReservationOf(const Job& job) const {
  TIER_CHECK(job.members.empty(), "job {} is reserved, with {} sessions", job.name, job.members.size());
  const tiering::JobCounters has = engine_.Counters(job.id);
  return {.uid = job.uid,
          .name = job.name,
          .named = job.named,
          .terms = {.guarantee_bytes = has.own_guarantee_bytes,
                    .limit_bytes = has.limit_bytes,
                    .ssd_guarantee_bytes = has.ssd_guarantee_bytes,
                    .ssd_limit_bytes = has.ssd_limit_bytes}};
}

Status JobService::Restore(const Reservation& reservation, base::TimePoint now) {
  const auto opened = Open(reservation.uid, RequestOf(reservation), std::nullopt, now);
  if (opened) return {};
  unopened_.Add(reservation, now + kRefusedReservationRetry, opened.error().message);
  return std::unexpected(opened.error());
}

// Who is refused is so until a quota is raised, or memory is free.
void JobService::OpenReservationsAgain(base::TimePoint now) {
  for (const Reservation& reservation : unopened_.TakeDue(now, now + kRefusedReservationRetry)) {
    if (registry_.FindOwned(reservation.uid, reservation.name) != nullptr) continue;  // Being resumed by its first run.
    const auto opened = Open(reservation.uid, RequestOf(reservation), std::nullopt, now);
    if (opened) continue;
    const bool soon = opened.error().code == Code::kTimeout;
    unopened_.Add(reservation, now + (soon ? kReservationRetry : kRefusedReservationRetry), opened.error().message);
  }
}

GivenUp JobService::GiveUpReservation(const UnstoredReservation& unstored, base::TimePoint now) {
  const auto& [id, uid, name, before] = unstored;
  TIER_CHECK(!before || (before->uid == uid && before->name == name), "job '{}' was reserved as '{}'", name,
             before->name);
  const Job* const open = registry_.FindOwned(uid, name);
  if (open != nullptr && !open->reserved) return GivenUp::kFirstRunCame;  // Under another id where it resumes.
  if (open != nullptr && open->id != id) return GivenUp::kClosed;         // That one was reserved later.
  // A first run that resumes has closed the job, and could not open its own yet.
  if (open == nullptr && unopened_.Find(uid, name) == nullptr) return GivenUp::kClosed;
  if (open != nullptr) Close(id, "its reservation could not be stored", false);
  (void)unopened_.Remove(uid, name);
  // The engine closes the other one first.
  if (before) unopened_.Add(*before, now + kReservationRetry, "it was reserved again, and that could not be stored");
  return GivenUp::kTakenBack;
}

std::optional<base::TimePoint> JobService::NextExpiry() const {
  const auto expiry = registry_.NextExpiry();
  const auto due = unopened_.next_due();
  return !due || (expiry && *expiry < *due) ? expiry : due;
}

void JobService::ApplyQuotas() {
  if (quotas_ == nullptr) return;
  for (const uint32_t uid : Owners()) engine_.SetQuota(uid, quotas_->QuotaOf(uid).bytes);
}

void JobService::CloseAdmission(const std::string& reason) {
  TIER_CHECK(!reason.empty(), "who is refused is told why");
  closed_reason_ = reason;
}

void JobService::StartDrain(const std::string& reason) {
  drain_reason_ = reason;
  engine_.StartDrain(reason);
}

void JobService::CloseExpired(base::TimePoint now) {
  for (const tiering::JobId id : registry_.Expired(now)) {
    Close(id, "nobody attached a session in time", false);
  }
  OpenReservationsAgain(now);
}

}  // namespace tier::session
