// See teardown.h.
#include "daemon/tiering/jobs/teardown.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/rollback.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/deferred_free.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/waiting.h"

namespace tier::tiering {
namespace {

// Leases that it was granted but never told of: it cannot have written a byte. They are its newest.
void CancelUntoldGrants(Core& core, SessionState& session) {
  for (LeaseSlot slot = session.leases; slot != kNoLease;) {
    const LeaseSlot next = core.leases[slot].next;
    const Lease& lease = core.leases[slot];
    if (lease.publication != core.publications) return;
    if (lease.exclusive()) CancelGrant(core, slot);
    slot = next;
  }
}

// As far as the turn reaches. True: the session has no lease any more.
bool EndLeases(Core& core, const SessionState& session) {
  while (session.leases != kNoLease && core.work.TrySpend(core.leases[session.leases].piece_count + 1)) {
    const LeaseSlot slot = session.leases;
    if (core.leases[slot].exclusive()) {
      RevertLease(core, core.leases[slot]);
      EndLease(core, slot);
    } else {
      Release(core, slot);
    }
  }
  return session.leases == kNoLease;
}

// Shared tensors that it was still creating come to nothing.
void FreeCreations(Core& core, SessionState& session) {
  for (const TensorRef tensor : session.creations) {
    if (Creates(core, session, tensor)) Detach(core, tensor.slot);
  }
  session.creations.clear();
  TIER_CHECK(session.creating_count == 0, "{} creations left", session.creating_count);
}

void CloseNow(Core& core, JobState& job) {
  // What the daemon asked for itself: nothing is left to be written.
  FinishInternal(core, job);
  TIER_CHECK(job.sessions.empty() && core.waits.empty(job), "{} sessions of job {}, or requests", job.sessions.size(),
             job.options.key);
  // All of an ephemeral job goes with it: what it committed, that is (AdoptManifest gives it nothing else).
  if (!job.options.named && HasCommitted(core, job)) DeleteManifest(core, job);
  QueueFree(core, job, &job.shared_tensors, 0);
  QueueFree(core, job, &job.inherited_tensors, kInheritedSpace);
  core.ledger.End(job.entitlement);
  job.prefetches.clear();
  core.jobs.Close(job);
  core.waits.OnRoomEverywhere();  // The arena has room again, now or soon.
}

}  // namespace

void EndSession(Core& core, SessionState& session, const Ending& ending) {
  JobState& job = *session.job;
  const SessionId id = session.id;
  DropWaitersOf(core, session);
  CancelUntoldGrants(core, session);
  BreakUpdates(core, session);
  const bool done = EndLeases(core, session);
  QueueFree(core, job, &session.tensors, static_cast<uint64_t>(id));
  FreeCreations(core, session);
  DropMappings(core, session);
  job.metadata->Recharge(MetadataKind::kAnswers, &session.unread_bytes, 0);
  std::erase(job.sessions, &session);
  core.replies.Forget(id);
  if (ending.code != Code::kOk) core.replies.SessionEnded(id, ending.code, ending.reason);
  core.sessions.Detach(session);
  if (done) {
    core.sessions.Free(session);
  } else {
    ++job.teardown_count;
    core.sessions.AddTeardown(session);
  }
  core.waits.OnRoom(job);
  core.made_progress = true;
  if (!job.sessions.empty()) return;
  core.ledger.SetLive(job.entitlement, false);
  core.waits.OnRoomEverywhere();  // Other jobs' parts are larger now.
  OnSessionsGone(core, job);
  if (!job.options.named && !job.closing) CloseNow(core, job);
}

void SetUnread(Core& core, SessionState& session, uint64_t bytes) {
  const MetadataAccount& account = *session.job->metadata;
  const bool more = bytes > session.unread_bytes;
  session.job->metadata->Recharge(MetadataKind::kAnswers, &session.unread_bytes, bytes);
  if (!more || account.HasRoomInReserve(0)) return;
  SessionState* silent = &session;
  core.sessions.ForEach([&](SessionState& other) {
    if (other.job->metadata == &account && other.unread_bytes > silent->unread_bytes) silent = &other;
  });
  core.metadata.CountRefusal();
  EndSession(core, *silent,
             {Code::kRevoked, fmt::format("{} of answers wait because its completions are not read: {}",
                                          base::FormatBytes(silent->unread_bytes), account.Describe())});
}

void ContinueTeardowns(Core& core) {
  const std::vector<SessionState*> teardowns = core.sessions.teardowns();
  core.made_progress |= !teardowns.empty();
  size_t count = teardowns.size();
  for (const SessionState* session : teardowns) {
    core.work.Divide(count--, [&] { EndLeases(core, *session); });
  }
  // A lease of more pieces than such a part is ended with what is left.
  for (const SessionState* session : teardowns) {
    if (!EndLeases(core, *session)) continue;
    --session->job->teardown_count;
    core.sessions.Free(*session);
  }
}

void EndFaultedJobs(Core& core) {
  for (const WindowFault& fault : core.reports.TakeWindowFaults()) {
    const std::vector<SessionState*> sessions = fault.job->sessions;
    for (SessionState* session : sessions) EndSession(core, *session, {Code::kRevoked, fault.reason});
  }
}

void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget) {
  const std::vector<SessionState*> sessions = job.sessions;
  const bool ephemeral = !job.options.named;
  const JobId id = job.id;
  if (forget && !ephemeral) DeleteManifest(core, job);  // An ephemeral job's goes with it; an earlier run's stays.
  for (SessionState* session : sessions) EndSession(core, *session, {Code::kRevoked, reason});
  if (ephemeral && !sessions.empty()) return;  // Went with its last session.
  TIER_CHECK(core.jobs.Find(id) == &job, "job {}", static_cast<uint64_t>(id));
  CloseNow(core, job);
}

void SweepClosedJobs(Core& core) {
  const std::vector<JobState*> closing = core.jobs.closing();
  for (JobState* each : closing) {
    JobState& job = *each;
    if (job.transfer_count != 0 || job.has_pending_frees()) continue;
    TIER_CHECK(
        job.counters.tensor_count == 0 && job.dirty_pages == 0 && job.logical_pages == 0 && job.unnamed_pages == 0,
        "tensors {} dirty {} logical {} unnamed {}", job.counters.tensor_count, job.dirty_pages, job.logical_pages,
        job.unnamed_pages);
    if (!job.windows.empty()) {
      RetireAll(core, job);
      core.waits.OnRoomEverywhere();
      core.made_progress = true;
    }
    if (ManifestUnderWay(core, job) || AwaitsSweep(core, job)) continue;
    core.ledger.Remove(job.entitlement);
    job.metadata->Recharge(MetadataKind::kKeys, &job.charged_key_bytes, 0);
    core.metadata.Close(*job.metadata);
    core.waits.CloseQueue(job);
    DeactivateManifest(core, job);
    core.jobs.Remove(job);
    core.made_progress = true;
  }
}

}  // namespace tier::tiering
