// The engine's face: jobs, sessions, turns. What is decided stands in the parts over Tables. See engine.h.
#include "daemon/tiering/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/device_work.h"
#include "daemon/tiering/durability/lost_manifests.h"
#include "daemon/tiering/durability/manifest_move.h"
#include "daemon/tiering/durability/manifest_replay.h"
#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/durability/quarantine.h"
#include "daemon/tiering/inspection/figures.h"
#include "daemon/tiering/inspection/invariants.h"
#include "daemon/tiering/inspection/places.h"
#include "daemon/tiering/inspection/pool.h"
#include "daemon/tiering/jobs/forced_return.h"
#include "daemon/tiering/jobs/kept_windows.h"
#include "daemon/tiering/jobs/options_change.h"
#include "daemon/tiering/jobs/teardown.h"
#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/memory/emptying.h"
#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/memory/hand_over.h"
#include "daemon/tiering/memory/merging.h"
#include "daemon/tiering/memory/quota_parts.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/memory/stalled.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/deferred_free.h"
#include "daemon/tiering/pieces/recency.h"
#include "daemon/tiering/requests/capacity.h"
#include "daemon/tiering/requests/scattered_room.h"
#include "daemon/tiering/requests/stalls.h"
#include "daemon/tiering/requests/submit.h"
#include "daemon/tiering/requests/waiting.h"
#include "daemon/tiering/tables/storage_capacity.h"
#include "daemon/tiering/tables/tables.h"
#include "daemon/tiering/transfers/ram_moves.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {

struct Engine::State {
  State(const EngineOptions& options, const EnginePorts& ports) : tables(options, ports) {}
  Tables tables;
};

namespace {

// Of one job, or of one that is to be opened.
struct JobTerms {
  Terms ram;
  Terms ssd;
  UserQuota quota;  // Of its user.
  uint64_t resumed_bytes = 0;
};

// Of the manifest that a job is resumed from, on devices that take extents: its tensors will have them.
uint64_t ResumedBytes(const Tables& tables, const std::string& key) {
  const ManifestHolds* const stored = tables.manifests.FindStored(key);
  uint64_t pages = 0;
  for (uint16_t device = 0; stored != nullptr && device < tables.ports.extents.device_count(); ++device) {
    if (tables.ports.extents.usable(device).capacity != 0) pages += stored->unused_pages_on(device);
  }
  return pages * kPageSize;
}

// May the job have these terms? Guarantees that stay as they are need no admission.
Status CheckTerms(const Tables& tables, uint32_t uid, EntitlementIndex job, const JobTerms& terms,
                  const TermsChange& change) {
  if (Status checked = CheckRamLimit(terms.ram.guarantee_bytes, terms.ram.limit_bytes); !checked) return checked;
  if (Status checked = CheckSsdLimit(terms.ssd.guarantee_bytes, terms.ssd.limit_bytes); !checked) return checked;
  if (change.guarantee_bytes) {
    Status given = tables.ledger.AdmitGuarantee(uid, job, terms.ram.guarantee_bytes, terms.quota);
    if (given && terms.ram.guarantee_bytes != 0) given = AdmitBesideTensors(tables, job, terms.ram.guarantee_bytes);
    if (!given) return given;
  }
  if (!change.ssd_guarantee_bytes) return {};
  if (terms.ssd.guarantee_bytes <= terms.resumed_bytes) return {};  // It has them: that takes nothing from others.
  const uint64_t capacity = StorageCapacity(tables) + terms.resumed_bytes;
  const uint64_t kept = KeptBy(tables, uid) - std::min(KeptBy(tables, uid), terms.resumed_bytes);
  return tables.storage.AdmitGuarantee(uid, job, terms.ssd.guarantee_bytes, {capacity, kept}, terms.quota.ssd);
}

// Jobs whose resume has ended.
void FinishOpenings(Tables& tables) {
  for (OpenedJob& opened : tables.reports.TakeOpened()) {
    const bool failed = !opened.status;
    tables.replies.JobOpened(opened.job, std::move(opened.status));
    if (failed) CloseJob(tables, *tables.jobs.Find(opened.job), "its manifest cannot be resumed", false);
  }
}

// Takes what the world has finished since the last turn.
void TakeEvents(Tables& tables) {
  tables.turn.NoteProgress(TakeWindows(tables));
  CheckKeptWindows(tables);
  tables.turn.NoteProgress(TakeResults(tables));
  if (!tables.ram_moves.empty()) tables.turn.NoteProgress(TakeRamMoves(tables));
  if (!tables.reports.empty()) {
    RefuseFailedReads(tables);
    EndFaultedJobs(tables);
  }
  tables.work.Enter(tables.work.units().store);
  // Sweeps may take all of the stage, turn after turn: resumes come first in every other one.
  const bool replays_first = tables.turn.number() % 2 == 0;
  if (replays_first) tables.turn.NoteProgress(ContinueReplays(tables));
  tables.turn.NoteProgress(TakeManifestResults(tables));
  if (!replays_first) tables.turn.NoteProgress(ContinueReplays(tables));
  if (!tables.reports.empty()) {
    FinishOpenings(tables);
    AnswerCommitted(tables);
  }
  tables.work.Enter(tables.work.units().teardown);
  if (!tables.sessions.teardowns().empty() || tables.updates.any_to_settle()) ContinueTeardowns(tables);
  tables.work.Enter(tables.work.units().frees);
  if (tables.jobs.any_freeing()) ContinueFrees(tables);
  if (!tables.jobs.closing().empty()) SweepClosedJobs(tables);
}

bool HandOverDue(const Tables& tables) {
  return tables.ledger.anybody_owed() || tables.ledger.serving() || tables.ledger.unbacked_bytes() != 0 ||
         tables.ledger.host_debt() != 0 || tables.ledger.wishes() || tables.hand_over.emptying() ||
         tables.hand_over.within_users();
}

// Each job with requests that can go on has its part. Then those whose requests cost more than that have the rest, each
// turn beginning with another job.
void RunReadyJobs(Tables& tables) {
  tables.waits.ListReadyJobs(&tables.scratch.ready_jobs);
  tables.work.Enter(tables.work.units().share);
  const size_t count = tables.scratch.ready_jobs.size();
  for (size_t i = 0; i < count; ++i) {
    tables.work.Divide(count - i, [&] { RunWaiters(tables, *tables.scratch.ready_jobs[i]); });
  }
  tables.work.Enter(tables.work.units().look);
  for (size_t i = 0; i < count; ++i) RunWaiters(tables, *tables.scratch.ready_jobs[(tables.turn.number() + i) % count]);
}

void MaintainJobs(Tables& tables) {
  tables.work.Enter(tables.work.units().maintain);
  tables.jobs.TakeMaintenance(&tables.scratch.maintained_jobs);
  size_t count = tables.scratch.maintained_jobs.size();
  for (JobState* job : tables.scratch.maintained_jobs) {
    tables.work.Divide(count--, [&] { Maintain(tables, *job); });
  }
}

void RetryWrites(Tables& tables) {
  if (!tables.jobs.any_write_retry()) return;
  while (JobState* job = tables.jobs.TakeWriteRetry(tables.turn.now())) {
    tables.jobs.NeedMaintenance(*job);
    tables.waits.OnWrite(*job);
    tables.waits.OnRoom(*job);
  }
}

// For requests, and for windows that are to go. Each may take all of the stage, or of what may be in flight.
void PlanMoves(Tables& tables) {
  tables.work.Enter(tables.work.units().compact);
  const bool windows_first = tables.turn.number() % 2 == 0;
  if (windows_first) LookThroughWindows(tables);
  MakeRunsForRequests(tables);
  if (!windows_first) LookThroughWindows(tables);
}

void WorkOnJobs(Tables& tables) {
  CallForBudget(tables);
  RetryWrites(tables);
  if (tables.waits.any_listed()) {
    tables.waits.TimeNew(tables.turn.now(), tables.options.deadline_default);
    RunReadyJobs(tables);
    tables.work.Enter(tables.work.units().expiry);
    ExpireWaiters(tables);
  }
  tables.waits.EndRuns();
  if (tables.ledger.anybody_owed() && tables.ledger.ExpireClaims(tables.turn.now())) {
    tables.waits.OnRoomEverywhere();  // Whose turn for windows it is may be another's now.
  }
  if (tables.jobs.any_needs_maintenance()) MaintainJobs(tables);
  if (tables.waits.any_for_room()) tables.waits.ListShortJobs();
  RenewClaims(tables);
  if (tables.ahead.any()) GiveBackAhead(tables);
  if (tables.windows.any_asked_back()) ExpireReturns(tables);
  if (tables.windows.any_overdue()) TakeUnreturned(tables);
  ServeStalled(tables);
  if (tables.ram_moves.any_wanted() || tables.hand_over.emptying()) PlanMoves(tables);
  tables.work.Enter(tables.work.units().move);
  if (HandOverDue(tables) && tables.turn.now() >= tables.hand_over.next_at()) {
    tables.hand_over.SetNextAt(HandOver(tables));
  }
  MergeWindows(tables);
  WorkOnDevices(tables);
  ForceReturns(tables);
}

// The one end of a turn. The order is the promise:
//   1. Extents that this turn freed become free, for transfers of later turns.
//   2. Replies are published.
//   3. Transfers are submitted, and copies in RAM. They may write to RAM that this turn freed, so none of them runs
//      before the turn has ended.
void EndTurn(Tables& tables) {
  tables.ports.extents.OnTurnEnded();
  SaveQuarantine(tables);
  tables.turn.NotePublication();
  tables.replies.Publish(tables.ports.replies);
  if (tables.flights.TakeStarted()) tables.ports.transfers.Submit();
  if (!tables.ram_moves.empty()) tables.ports.copier->Submit();
  tables.work.BeginTurn();
}

}  // namespace

Engine::Engine(const EngineOptions& options, const EnginePorts& ports)
    : state_(std::make_unique<State>(options, ports)) {
  LoadManifests(state_->tables);
  LoadQuarantine(state_->tables);
}

Engine::~Engine() = default;

Status Engine::OpenJob(JobId id, const JobOptions& options) {
  Tables& tables = state_->tables;
  TIER_CHECK(tables.jobs.Find(id) == nullptr && id != JobId{}, "job {} opened twice", static_cast<uint64_t>(id));
  if (!options.key.empty() && tables.jobs.FindByKey(options.key) != nullptr)
    return Fail(Code::kAlreadyExists, fmt::format("job {} is open", options.key));
  if (IsClosing(tables, options.key)) {
    return Fail(Code::kTimeout, fmt::format("job {} is still being closed; try again", options.key));
  }
  if ((options.named || options.resume) && ErasureUnderWay(tables, options.key)) {
    return Fail(Code::kTimeout, fmt::format("the manifest of job {} is still being removed; try again", options.key));
  }
  if ((options.named || options.resume) && StopMoveOf(tables, options.key)) {
    return Fail(Code::kTimeout, fmt::format("what job {} persisted is being moved off a device that is drained; try "
                                            "again",
                                            options.key));
  }
  const JobTerms terms{.ram = {options.guarantee_bytes, options.limit_bytes},
                       .ssd = {options.ssd_guarantee_bytes, options.ssd_limit_bytes},
                       .quota = options.quota.value_or(tables.options.quota),
                       .resumed_bytes = options.resume ? ResumedBytes(tables, options.key) : 0};
  const TermsChange asked{.guarantee_bytes = options.guarantee_bytes,
                          .ssd_guarantee_bytes = options.ssd_guarantee_bytes};
  if (Status given = CheckTerms(tables, options.uid, kNoEntitlement, terms, asked); !given) return given;
  JobState& opened = tables.jobs.Open(id, options,
                                      {.metadata = &tables.metadata.Open(options.uid),
                                       .entitlement = tables.ledger.Open(id, options.uid, terms.ram, terms.quota),
                                       .policy = std::make_unique<RecencyPolicy>(tables.pieces)});
  tables.storage.Open(opened.entitlement, options.uid, terms.ssd, terms.quota.ssd);
  tables.waits.OpenQueue(opened);
  OnQuotaDivided(tables, opened);
  const Status adopted = AdoptManifest(tables, opened, options.resume);
  if (!adopted) CloseJob(id, "its manifest cannot be resumed", false);
  return adopted;
}

Status Engine::SetJob(JobId id, const TermsChange& change) {
  Tables& tables = state_->tables;
  JobState* job = tables.jobs.Find(id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(id)));
  const JobRecord& is = job->record;
  const JobTerms terms{
      .ram = {change.guarantee_bytes.value_or(is.guarantee_bytes), change.limit_bytes.value_or(is.limit_bytes)},
      .ssd = {change.ssd_guarantee_bytes.value_or(is.ssd_guarantee_bytes),
              change.ssd_limit_bytes.value_or(is.ssd_limit_bytes)},
      .quota = tables.ledger.UserOf(job->entitlement).quota};
  if (Status given = CheckTerms(tables, is.uid, job->entitlement, terms, change); !given) return given;
  JobRecord& record = tables.jobs.Edit(*job);
  record.guarantee_bytes = terms.ram.guarantee_bytes;
  record.limit_bytes = terms.ram.limit_bytes;
  record.ssd_guarantee_bytes = terms.ssd.guarantee_bytes;
  record.ssd_limit_bytes = terms.ssd.limit_bytes;
  tables.ledger.Set(job->entitlement, terms.ram);
  tables.storage.Set(job->entitlement, terms.ssd);
  tables.waits.OnRoomEverywhere();  // The entitlements of others have changed too.
  tables.jobs.NeedMaintenance(*job);
  OnQuotaDivided(tables, *job);
  return {};
}

void Engine::SetQuota(uint32_t uid, const UserQuota& quota) {
  Tables& tables = state_->tables;
  tables.storage.SetQuota(uid, quota.ssd);
  if (!tables.ledger.SetQuota(uid, quota)) return;
  OnOtherParts(tables, uid);
  tables.waits.OnRoomEverywhere();  // What other users are promised has changed too.
}

uint64_t Engine::StorageOf(uint32_t uid) const {
  return state_->tables.storage.ClaimedBy(uid) + KeptBy(state_->tables, uid);
}

std::vector<StoredManifest> Engine::StoredManifests(const std::string& prefix, size_t max) const {
  return ListStoredManifests(state_->tables, prefix, max);
}

Status Engine::DeleteStoredManifest(const std::string& key) {
  return tiering::DeleteStoredManifest(state_->tables, key);
}

Status Engine::CheckSettled(const std::string& prefix) const { return CheckManifestsSettled(state_->tables, prefix); }

void Engine::CloseJob(JobId id, const std::string& reason, bool purge) {
  JobState* job = state_->tables.jobs.Find(id);
  if (job != nullptr) tiering::CloseJob(state_->tables, *job, reason, purge);
}

Status Engine::OpenSession(SessionId id, JobId job_id) {
  Tables& tables = state_->tables;
  JobState* job = tables.jobs.Find(job_id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(job_id)));
  TIER_CHECK(tables.sessions.Find(id) == nullptr && id != SessionId{} && id != kInternalSession,
             "session {} opened twice", static_cast<uint64_t>(id));
  TIER_CHECK(!job->replay.under_way(), "session {} comes before job {} is resumed", static_cast<uint64_t>(id),
             job->key);
  SessionState* const opened = tables.sessions.Open(id, *job, tables.options.deadline_default);
  if (opened == nullptr) {
    return Fail(Code::kNoMemory,
                fmt::format("{} sessions are attached, at most {}", tables.sessions.size(), kSessionsMax));
  }
  SessionState& session = *opened;
  tables.sessions.Edit(session).step = job->record.steps;
  if (job->sessions.empty()) {
    tables.ledger.SetLive(job->entitlement, true);
    OnQuotaDivided(tables, *job);
  }
  job->sessions.Attach(id, session);
  job->sessions.NoteRequest(tables.turn.now());
  return {};
}

void Engine::SetNode(SessionId id, int node) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session != nullptr) session->numa_node = node;
}

void Engine::EndSession(SessionId id, Code code, const std::string& reason, std::optional<JobId> ends_job) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session != nullptr) tiering::EndSession(state_->tables, *session, {code, reason, EndedBy::kSessionLayer});
  if (ends_job) CloseJob(*ends_job, reason, false);
}

void Engine::WindowReturned(SessionId id, WindowIndex window) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session == nullptr) return;
  OnWindowReturned(state_->tables, *session, window);
}

void Engine::TakenWindowReturned(SessionId id, WindowIndex window) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session == nullptr) return;
  OnTakenReturned(state_->tables, *session, window);
}

void Engine::Submit(SessionId id, const Request& request) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session == nullptr) return;  // It ended while its last requests were on their way.
  state_->tables.turn.NoteProgress();
  SubmitRequest(state_->tables, *session, request);
}

Status Engine::FlushJob(JobId id, uint64_t sequence, uint32_t timeout_ms) {
  JobState* job = state_->tables.jobs.Find(id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(id)));
  state_->tables.turn.NoteProgress();
  SubmitJobFlush(state_->tables, *job, sequence, timeout_ms);
  return {};
}

bool Engine::HoldsBackNext(SessionId session) const {
  const SessionState* const state = state_->tables.sessions.Find(session);
  return state != nullptr && state->requests.unfinished() != 0;
}
bool Engine::TakesRequests() const {
  const WorkBudget& work = state_->tables.work;
  return work.left() > std::min(proto::kItemsPerRequestMax, work.units().submit / 2);
}

void Engine::SetUnread(SessionId id, uint64_t bytes) {
  SessionState* session = state_->tables.sessions.Find(id);
  if (session != nullptr) tiering::SetUnread(state_->tables, *session, bytes);
}

uint32_t Engine::outstanding(SessionId id) const {
  const SessionState* session = state_->tables.sessions.Find(id);
  return session == nullptr ? 0 : session->requests.outstanding();
}

bool Engine::Turn(base::TimePoint now) {
  Tables& tables = state_->tables;
  tables.turn.Begin(now);
  tables.waits.BeginTurn(tables.turn.now());
  TakeEvents(tables);
  WorkOnJobs(tables);
  tables.work.Enter(tables.work.units().drop);
  StartQueuedReads(tables);
  tables.ShrinkDue();
  tables.turn.NoteProgress(!tables.replies.empty());
  EndTurn(tables);
  return tables.turn.TakeProgress();
}

std::optional<base::TimePoint> Engine::NextDeadline() const {
  const Tables& tables = state_->tables;
  std::optional<base::TimePoint> next;
  const auto consider = [&next](base::TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (tables.waits.any_ready()) consider(tables.turn.now());
  if (const auto at = tables.waits.NextDeadline()) consider(*at);
  if (HandOverDue(tables)) consider(tables.hand_over.next_at());
  if (!tables.waits.jobs_owed_leases().empty()) consider(tables.turn.now() + kCheckInterval);
  if (const auto at = NextServing(tables)) consider(*at);
  if (tables.ahead.any()) consider(tables.ahead.oldest().at);
  if (const auto at = tables.merge.NextDeadline()) consider(*at);
  if (const auto at = NextCallForBudget(tables)) consider(*at);
  if (tables.windows.any_overdue()) consider(tables.windows.oldest_overdue().at + tables.options.reclaim_deadline);
  if (const auto at = tables.jobs.NextWriteRetry()) consider(*at);
  if (const auto at = NextDeviceWork(tables)) consider(*at);
  if (const auto at = tables.devices.NextDeadline(tables.turn.now())) consider(*at);
  if (tables.can_shrink()) consider(tables.shrink_at);
  return next;
}

void Engine::StartDrain(const std::string& reason) {
  Tables& tables = state_->tables;
  tables.drain.Start(reason);
  StopMove(tables);
  for (JobState* job : tables.jobs.open()) {
    RefuseAll(tables, *job, {Code::kDisconnected, reason, {}});
    job->prefetches.Clear();
  }
}

bool Engine::idle() const {
  const Tables& tables = state_->tables;
  return tables.ports.transfers.inflight() == 0 && tables.flights.queue_empty() && tables.ram_moves.empty() &&
         tables.manifests.idle() && tables.waits.size() == 0 && tables.replies.empty();
}

bool Engine::ReleasesCanWait() const {
  const Tables& tables = state_->tables;
  if (!idle() || tables.drain.draining() || AnyDeviceWork(tables) || HandOverDue(tables)) return false;
  if (tables.jobs.any_needs_maintenance() || tables.jobs.any_prefetch() || tables.FreesUnderWay()) return false;
  return tables.leases.used() != 0;
}

Status Engine::SetDeviceDraining(uint16_t device, bool draining) {
  Tables& tables = state_->tables;
  const uint16_t count = tables.ports.extents.device_count();
  if (device >= count) return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, count));
  tables.ports.extents.SetDraining(device, draining);
  tables.drain.SetDevice(device, draining);
  OnDrainsChanged(tables);
  tables.devices.NoteOpened();  // Another set of devices takes extents now.
  return {};
}

Status Engine::RetryDevice(uint16_t device) {
  const uint16_t count = state_->tables.ports.extents.device_count();
  if (device >= count) return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, count));
  RetryQuarantined(state_->tables, device);
  return {};
}

Status Engine::PurgeDevice(const std::string& uuid, Purged done) {
  return StartPurge(state_->tables, uuid, std::move(done));
}

void Engine::SetOptions(const EngineOptions& options) { ChangeOptions(state_->tables, options); }
EngineSnapshot Engine::Snapshot() const { return TakeSnapshot(state_->tables); }
uint64_t Engine::HeldMetadata() const { return tiering::HeldMetadata(state_->tables); }
JobCounters Engine::Counters(JobId job) const { return CountersOf(state_->tables, job); }
StallList Engine::Stalls(JobId id, base::TimePoint now) const { return ListStalls(state_->tables, id, now); }
PoolView Engine::Pool() const { return ViewPool(state_->tables); }
TensorPage Engine::Tensors(JobId job, uint32_t from, size_t max) const {
  return ListTensors(state_->tables, job, from, max);
}
void Engine::CheckInvariants() const { tiering::CheckInvariants(state_->tables); }
std::vector<PiecePlace> Engine::NamedPlaces() const { return tiering::NamedPlaces(state_->tables); }

}  // namespace tier::tiering
