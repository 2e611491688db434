// The engine's face: jobs, sessions, turns. What is decided stands in the parts over Core. See engine.h.
#include "daemon/tiering/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/device_drain.h"
#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/inspection/figures.h"
#include "daemon/tiering/inspection/invariants.h"
#include "daemon/tiering/jobs/teardown.h"
#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/memory/hand_over.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/memory/stalled.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/deferred_free.h"
#include "daemon/tiering/pieces/recency.h"
#include "daemon/tiering/requests/submit.h"
#include "daemon/tiering/requests/waiting.h"
#include "daemon/tiering/tables/core.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {

struct Engine::State {
  State(const EngineOptions& options, const EnginePorts& ports) : core(options, ports) {}
  Core core;
};

namespace {

Status CheckLimit(uint64_t guarantee_bytes, uint64_t limit_bytes) {
  if (limit_bytes == 0 || guarantee_bytes <= limit_bytes) return {};
  return Fail(Code::kInvalid,
              fmt::format("a limit of {} is below the guarantee of {}: raise the limit, or lower the guarantee with it",
                          base::FormatBytes(limit_bytes), base::FormatBytes(guarantee_bytes)));
}

// Takes what the world has finished since the last turn.
void TakeEvents(Core& core) {
  core.made_progress |= TakeWindows(core);
  core.made_progress |= TakeResults(core);
  RefuseFailedReads(core);
  EndFaultedJobs(core);
  core.work.Enter(core.work.units().store);
  core.made_progress |= TakeManifestResults(core);
  AnswerCommitted(core);
  core.work.Enter(core.work.units().teardown);
  ContinueTeardowns(core);
  core.work.Enter(core.work.units().frees);
  ContinueFrees(core);
  SweepClosedJobs(core);
}

bool HandOverDue(const Core& core) {
  return core.ledger.anybody_owed() || core.ledger.serving() || core.ledger.unbacked_bytes() != 0 ||
         !core.emptying.windows.empty();
}

// Each job with requests that can go on has its part. Then those whose requests cost more than that have the rest, each
// turn beginning with another job.
void RunReadyJobs(Core& core) {
  core.waits.ListReadyJobs(&core.ready_jobs);
  core.work.Enter(core.work.units().share);
  const size_t count = core.ready_jobs.size();
  for (size_t i = 0; i < count; ++i) {
    core.work.Divide(count - i, [&] { RunWaiters(core, *core.ready_jobs[i]); });
  }
  core.work.Enter(core.work.units().look);
  for (size_t i = 0; i < count; ++i) RunWaiters(core, *core.ready_jobs[(core.turns + i) % count]);
}

void MaintainJobs(Core& core) {
  core.work.Enter(core.work.units().maintain);
  core.jobs.TakeMaintenance(&core.maintained_jobs);
  size_t count = core.maintained_jobs.size();
  for (JobState* job : core.maintained_jobs) {
    core.work.Divide(count--, [&] { Maintain(core, *job); });
  }
}

void WorkOnJobs(Core& core) {
  core.waits.TimeNew(core.now, core.options.deadline_default);
  while (JobState* job = core.jobs.TakeWriteRetry(core.now)) {
    core.jobs.NeedMaintenance(*job);
    core.waits.OnWrite(*job);
    core.waits.OnRoom(*job);
  }
  RunReadyJobs(core);
  core.work.Enter(core.work.units().expiry);
  ExpireWaiters(core);
  if (core.ledger.ExpireClaims(core.now))
    core.waits.OnRoomEverywhere();  // Whose turn for windows it is may be another's now.
  MaintainJobs(core);
  core.waits.ListShortJobs(&core.short_jobs);
  for (JobState* job : core.short_jobs) core.ledger.RenewClaim(job->entitlement, core.now);
  ExpireReturns(core);
  ServeStalled(core);
  core.work.Enter(core.work.units().move);
  if (!HandOverDue(core)) {
    StopHandOver(core);
  } else if (core.now >= core.next_hand_over) {
    core.next_hand_over = core.now + kHandOverInterval;
    HandOver(core);
  }
  if (core.draining_devices != 0) DrainDevices(core);
}

// The one end of a turn. The order is the promise:
//   1. Extents that this turn freed become free, for transfers of later turns.
//   2. Replies are published.
//   3. Transfers are submitted. They may write to RAM that this turn freed, so none of them runs before the turn has
//      ended.
void EndTurn(Core& core) {
  core.ports.extents.OnTurnEnded();
  ++core.publications;
  core.replies.Publish(core.ports.replies);
  if (core.flights.TakeStarted()) core.ports.transfers.Submit();
  core.work.BeginTurn();
}

}  // namespace

Engine::Engine(const EngineOptions& options, const EnginePorts& ports)
    : state_(std::make_unique<State>(options, ports)) {
  LoadManifests(state_->core);
}

Engine::~Engine() = default;

Status Engine::OpenJob(JobId id, const JobOptions& options) {
  Core& core = state_->core;
  TIER_CHECK(core.jobs.Find(id) == nullptr && id != JobId{}, "job {} opened twice", static_cast<uint64_t>(id));
  if (!options.key.empty() && core.jobs.FindByKey(options.key) != nullptr)
    return Fail(Code::kAlreadyExists, fmt::format("job {} is open", options.key));
  if (IsClosing(core, options.key)) {
    return Fail(Code::kTimeout, fmt::format("job {} is still being closed; try again", options.key));
  }
  if ((options.named || options.resume) && ErasureUnderWay(core, options.key)) {
    return Fail(Code::kTimeout, fmt::format("the manifest of job {} is still being removed; try again", options.key));
  }
  if (Status checked = CheckLimit(options.guarantee_bytes, options.limit_bytes); !checked) return checked;
  if (Status given = core.ledger.AdmitGuarantee(options.uid, kNoEntitlement, options.guarantee_bytes); !given) {
    return given;
  }
  auto job = std::make_unique<JobState>();
  job->id = id;
  job->options = options;
  job->options.named |= options.resume;  // What is resumed outlives its sessions again.
  job->policy = std::make_unique<RecencyPolicy>(core.pieces);
  job->internal_session.id = kInternalSession;
  job->internal_session.slot = kNoSessionSlot;
  job->internal_session.job = job.get();
  job->metadata = &core.metadata.Open(options.uid);
  job->entitlement = core.ledger.Open(id, options.uid, {options.guarantee_bytes, options.limit_bytes});
  JobState& opened = core.jobs.Open(std::move(job));
  core.waits.OpenQueue(opened);
  const Status adopted = AdoptManifest(core, opened, options.resume);
  if (!adopted) CloseJob(id, "its manifest cannot be resumed", false);
  return adopted;
}

Status Engine::SetJob(JobId id, std::optional<uint64_t> guarantee_bytes, std::optional<uint64_t> limit_bytes) {
  Core& core = state_->core;
  JobState* job = core.jobs.Find(id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(id)));
  const uint64_t guarantee = guarantee_bytes.value_or(job->options.guarantee_bytes);
  const uint64_t limit = limit_bytes.value_or(job->options.limit_bytes);
  if (Status checked = CheckLimit(guarantee, limit); !checked) return checked;
  if (guarantee_bytes) {
    if (Status given = core.ledger.AdmitGuarantee(job->options.uid, job->entitlement, guarantee); !given) return given;
  }
  job->options.guarantee_bytes = guarantee;
  job->options.limit_bytes = limit;
  core.ledger.Set(job->entitlement, {guarantee, limit});
  core.waits.OnRoomEverywhere();  // The entitlements of others have changed too.
  core.jobs.NeedMaintenance(*job);
  return {};
}

std::vector<StoredManifest> Engine::StoredManifests(const std::string& prefix, size_t max) const {
  return ListStoredManifests(state_->core, prefix, max);
}

Status Engine::DeleteStoredManifest(const std::string& key) { return tiering::DeleteStoredManifest(state_->core, key); }

void Engine::CloseJob(JobId id, const std::string& reason, bool forget) {
  JobState* job = state_->core.jobs.Find(id);
  if (job != nullptr) tiering::CloseJob(state_->core, *job, reason, forget);
}

Status Engine::OpenSession(SessionId id, JobId job_id) {
  Core& core = state_->core;
  JobState* job = core.jobs.Find(job_id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(job_id)));
  TIER_CHECK(core.sessions.Find(id) == nullptr && id != SessionId{} && id != kInternalSession,
             "session {} opened twice", static_cast<uint64_t>(id));
  SessionState* const opened = core.sessions.Open(id, *job);
  if (opened == nullptr) {
    return Fail(Code::kNoMemory,
                fmt::format("{} sessions are attached, at most {}", core.sessions.size(), kSessionsMax));
  }
  SessionState& session = *opened;
  session.step = job->steps;
  if (job->sessions.empty()) core.ledger.SetLive(job->entitlement, true);
  job->sessions.push_back(&session);
  return {};
}

void Engine::EndSession(SessionId id, const std::string& reason) {
  SessionState* session = state_->core.sessions.Find(id);
  if (session != nullptr) tiering::EndSession(state_->core, *session, {Code::kOk, reason});
}

void Engine::WindowReturned(SessionId id, WindowIndex window) {
  SessionState* session = state_->core.sessions.Find(id);
  if (session == nullptr) return;
  OnWindowReturned(state_->core, *session, window);
}

void Engine::Submit(SessionId id, const Request& request) {
  SessionState* session = state_->core.sessions.Find(id);
  if (session == nullptr) return;  // It ended while its last requests were on their way.
  state_->core.made_progress = true;
  SubmitRequest(state_->core, *session, request);
}

Status Engine::FlushJob(JobId id, uint64_t sequence, uint32_t timeout_ms) {
  JobState* job = state_->core.jobs.Find(id);
  if (job == nullptr) return Fail(Code::kNotFound, fmt::format("no job {}", static_cast<uint64_t>(id)));
  state_->core.made_progress = true;
  SubmitJobFlush(state_->core, *job, sequence, timeout_ms);
  return {};
}

bool Engine::TakesRequests() const { return state_->core.work.left() > proto::kItemsPerRequestMax; }

void Engine::SetUnread(SessionId id, uint64_t bytes) {
  SessionState* session = state_->core.sessions.Find(id);
  if (session != nullptr) tiering::SetUnread(state_->core, *session, bytes);
}

uint32_t Engine::outstanding(SessionId id) const {
  const SessionState* session = state_->core.sessions.Find(id);
  return session == nullptr ? 0 : session->outstanding;
}

bool Engine::Turn(base::TimePoint now) {
  Core& core = state_->core;
  core.now = std::max(core.now, now);
  ++core.turns;
  TakeEvents(core);
  WorkOnJobs(core);
  StartQueuedReads(core);
  core.made_progress |= !core.replies.empty();
  EndTurn(core);
  return std::exchange(core.made_progress, false);
}

std::optional<base::TimePoint> Engine::NextDeadline() const {
  const Core& core = state_->core;
  std::optional<base::TimePoint> next;
  const auto consider = [&next](base::TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (core.waits.any_ready()) consider(core.now);
  if (const auto at = core.waits.NextDeadline()) consider(*at);
  if (HandOverDue(core)) consider(core.next_hand_over);
  if (const auto at = core.jobs.NextWriteRetry()) consider(*at);
  return next;
}

void Engine::StartDrain(const std::string& reason) {
  Core& core = state_->core;
  core.draining = true;
  core.drain_reason = reason;
  for (JobState* job : core.jobs.open()) {
    RefuseAll(core, *job, {Code::kDisconnected, reason, {}});
    job->prefetches.clear();
  }
}

bool Engine::idle() const {
  const Core& core = state_->core;
  return core.ports.transfers.inflight() == 0 && core.flights.queue_empty() && core.manifests.idle() &&
         core.waits.size() == 0 && core.replies.empty();
}

bool Engine::ReleasesCanWait() const {
  const Core& core = state_->core;
  if (!idle() || core.draining || core.draining_devices != 0 || !core.short_jobs.empty() || HandOverDue(core))
    return false;
  if (core.jobs.any_needs_maintenance() || core.waits.anybody_is_short()) return false;
  return core.leases.used() != 0 && std::ranges::none_of(core.jobs.open(), [](const JobState* job) {
           return !job->prefetches.empty() || job->has_pending_frees();
         });
}

Status Engine::StartDrainDevice(uint16_t device) {
  Core& core = state_->core;
  const uint16_t count = core.ports.extents.device_count();
  if (device >= count) return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, count));
  core.ports.extents.SetDraining(device, true);
  core.draining_devices |= uint64_t{1} << device;
  return {};
}

EngineSnapshot Engine::Snapshot() const { return TakeSnapshot(state_->core); }
JobCounters Engine::Counters(JobId job) const { return CountersOf(state_->core, job); }
TensorPage Engine::Tensors(JobId job, uint32_t from, size_t max) const {
  return ListTensors(state_->core, job, from, max);
}
void Engine::CheckInvariants() const { tiering::CheckInvariants(state_->core); }
std::vector<PiecePlace> Engine::NamedPlaces() const { return tiering::NamedPlaces(state_->core); }

}  // namespace tier::tiering
