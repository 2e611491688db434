// See teardown.h.
#include "daemon/tiering/jobs/teardown.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/manifest_replay.h"
#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/rollback.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/memory/quota_parts.h"
#include "daemon/tiering/memory/window_ownership.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/deferred_free.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/waiting.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kTeardownPartMin = 256;  // Units of work that one of many sessions has in its turn.

// Leases that it was granted but never told of: it cannot have written a byte. They are its newest.
void CancelUntoldGrants(Tables& tables, SessionState& session) {
  for (LeaseIndex index = session.record.leases; index != kNoLease;) {
    const LeaseIndex next = tables.leases[index].next;
    const Lease& lease = tables.leases[index];
    if (lease.publication != tables.turn.publications()) return;
    if (lease.exclusive()) CancelGrant(tables, index);
    index = next;
  }
}

// As far as the turn reaches. True: the session has no lease any more.
bool EndLeases(Tables& tables, const SessionState& session) {
  while (session.record.leases != kNoLease &&
         tables.work.TrySpend(tables.leases[session.record.leases].piece_count + 1)) {
    const LeaseIndex index = session.record.leases;
    if (tables.leases[index].exclusive()) {
      RevertLease(tables, tables.leases[index]);
      EndLease(tables, index);
    } else {
      Release(tables, index);
    }
  }
  return session.record.leases == kNoLease;
}

// Shared tensors that it was still creating come to nothing. True: all of them.
bool FreeCreations(Tables& tables, SessionState& session) {
  while (!session.creations.empty() && tables.work.TrySpend()) {
    const TensorRef tensor = session.creations.TakeNewest();
    // Of a job that is closed they go with its namespaces, which are being freed already.
    if (!session.job->record.closing && Creates(tables, session, tensor)) Detach(tables, tensor.index);
  }
  return session.creations.empty();
}

// As far as the turn reaches. True: the session holds nothing any more.
bool GiveBack(Tables& tables, SessionState& session) {
  if (!ContinueReleases(tables, session)) return false;
  tables.updates.BeginEnding(session.index);  // Not before: what it sealed is sealed.
  return DropWaitersOf(tables, session) && BreakUpdates(tables, session) && EndLeases(tables, session) &&
         FreeCreations(tables, session);
}

void CloseNow(Tables& tables, JobState& job) {
  // What the daemon asked for itself: nothing is left to be written.
  FinishInternal(tables, job);
  TIER_CHECK(job.sessions.empty(), "{} sessions of job {}", job.sessions.size(), job.key);
  // All of an ephemeral job goes with it: what it committed, that is (AdoptManifest gives it nothing else).
  if (!job.record.named && HasCommitted(tables, job)) DeleteManifest(tables, job);
  QueueFree(tables, job, &tables.jobs.Edit(job).shared_tensors, 0);
  QueueFree(tables, job, &tables.jobs.Edit(job).inherited_tensors, kInheritedSpace);
  tables.ledger.End(job.entitlement);
  tables.storage.End(job.entitlement);
  job.prefetches.Clear();
  DropReplay(tables, job);
  tables.jobs.Close(job);
  OnQuotaDivided(tables, job);
  tables.waits.OnRoomEverywhere();  // The arena has room again, now or soon.
}

// Its process goes on: what that maps is watched when it is taken (jobs/kept_windows.h).
void NoteMapped(Tables& tables, const SessionState& session) {
  session.windows.mapped().ForEach([&](WindowIndex window) {
    const WindowCondition condition = tables.windows[window].condition;
    if (condition != WindowCondition::kReady && condition != WindowCondition::kReturning) return;
    tables.ports.windows.NoteUnreturned(window, static_cast<uint64_t>(session.id));
  });
}

// What is empty of it goes, so many windows, though a transfer that perhaps never ends keeps the rest. Those of the
// highest places first.
void RetireEmpty(Tables& tables, JobState& job, uint32_t* windows) {
  const uint32_t before = *windows;
  for (auto first = job.pool.RegionBelow(UINT32_MAX); first && *windows != 0; first = job.pool.RegionBelow(*first)) {
    if (!job.pool.RegionEmpty(*first)) continue;
    ReturnWindow(tables, tables.windows.WindowOf({.block = *first, .page = 0, .pages = 0}));
    --*windows;
  }
  if (*windows == before) return;
  tables.waits.OnRoomEverywhere();
  tables.turn.NoteProgress();
}

}  // namespace

void EndSession(Tables& tables, SessionState& session, const Ending& ending) {
  JobState& job = *session.job;
  const SessionId id = session.id;
  session.BeginEnding();
  session.listing.MoveTo(kNoTensor);  // Its request is dropped when its turn comes; no tensor is to be kept for it.
  CancelUntoldGrants(tables, session);
  const bool done = GiveBack(tables, session);
  QueueFree(tables, job, &tables.sessions.Edit(session).tensors, static_cast<uint64_t>(id));
  if (ending.code == Code::kRevoked) NoteMapped(tables, session);
  DropMappings(tables, session);
  job.metadata->Recharge(&session.unread, 0);
  job.sessions.Detach(id);
  tables.replies.Drop(id);
  if (ending.by == EndedBy::kEngine) tables.replies.SessionEnded(id, ending.code, ending.reason);
  tables.sessions.Detach(session);
  if (done) {
    tables.sessions.Free(session);
  } else {
    job.frees.StartTeardown();
    tables.sessions.AddTeardown(session);
  }
  tables.waits.OnRoom(job);
  tables.turn.NoteProgress();
  if (!job.sessions.empty()) return;
  job.prefetches.Clear();  // No session is left that has announced a use.
  tables.ledger.SetLive(job.entitlement, false);
  OnQuotaDivided(tables, job);
  tables.waits.OnRoomEverywhere();  // Other jobs' parts are larger now.
  OnSessionsGone(tables, job);
}

void SetUnread(Tables& tables, SessionState& session, uint64_t bytes) {
  const MetadataAccount& account = *session.job->metadata;
  const bool more = bytes > session.unread.bytes();
  session.job->metadata->Recharge(&session.unread, bytes);
  if (!more || !account.IsOver()) return;
  SessionState* silent = &session;
  tables.sessions.ForEach([&](SessionState& other) {
    if (other.job->metadata == &account && other.unread.bytes() > silent->unread.bytes()) silent = &other;
  });
  tables.metadata.CountRefusal();
  EndSession(tables, *silent,
             {Code::kRevoked, fmt::format("{} of answers wait because its completions are not read: {}",
                                          base::FormatBytes(silent->unread.bytes()), account.Describe())});
}

void ContinueTeardowns(Tables& tables) {
  const std::vector<SessionState*> teardowns = tables.sessions.teardowns();
  tables.turn.NoteProgress(!teardowns.empty());
  // A lease or a request may cost more than a part, and others may leave too little of every turn: now and then the
  // oldest has all of one.
  if (!teardowns.empty() && tables.turn.number() % 4 == 0) GiveBack(tables, *teardowns.front());
  // Of very many each has its part every few turns.
  const uint32_t least = std::clamp(tables.work.units().teardown / 8, 1u, kTeardownPartMin);
  const size_t count = std::min<size_t>(teardowns.size(), std::max(tables.work.left() / least, 1u));
  const size_t first = count == teardowns.size() ? 0 : tables.turn.number() * count;
  const auto served = [&](size_t i) -> SessionState& { return *teardowns[(first + i) % teardowns.size()]; };
  for (size_t i = 0; i < count; ++i) {
    tables.work.Divide(count - i, [&] { GiveBack(tables, served(i)); });
  }
  // What costs more than such a part goes with what is left.
  for (size_t i = 0; i < count; ++i) {
    if (!GiveBack(tables, served(i))) continue;
    served(i).job->frees.EndTeardown();
    tables.sessions.Free(served(i));
  }
  SettleEndedSteps(tables);
}

void EndFaultedJobs(Tables& tables) {
  for (const WindowFault& fault : tables.reports.TakeWindowFaults()) {
    const std::vector<SessionState*> sessions = fault.job->sessions.list();
    for (SessionState* session : sessions) EndSession(tables, *session, {Code::kRevoked, fault.reason});
  }
}

void CloseJob(Tables& tables, JobState& job, const std::string& reason, bool purge) {
  const std::vector<SessionState*> sessions = job.sessions.list();
  if (purge && job.record.named)
    DeleteManifest(tables, job);  // An ephemeral job's goes with it; an earlier run's stays.
  for (SessionState* session : sessions) EndSession(tables, *session, {Code::kRevoked, reason});
  CloseNow(tables, job);
}

void SweepClosedJobs(Tables& tables) {
  const std::vector<JobState*> closing = tables.jobs.closing();
  uint32_t windows = tables.work.units().windows;  // That may go in this turn.
  for (JobState* each : closing) {
    JobState& job = *each;
    if (job.moves.any() || job.frees.any()) continue;
    RetireEmpty(tables, job, &windows);
    if (job.transfers.count() != 0) continue;
    TIER_CHECK(job.record.counters.tensor_count == 0 && job.pages.dirty() == 0 && job.pages.logical() == 0 &&
                   job.pages.unnamed() == 0 && job.used_pages() == 0,
               "tensors {} dirty {} logical {} unnamed {} used {}", job.record.counters.tensor_count, job.pages.dirty(),
               job.pages.logical(), job.pages.unnamed(), job.used_pages());
    if (!job.windows.ready().empty()) continue;
    if (ManifestUnderWay(tables, job) || AwaitsSweep(tables, job)) continue;
    tables.ledger.Remove(job.entitlement);
    tables.storage.Remove(job.entitlement);
    job.metadata->Recharge(&job.key_charge, 0);
    DeactivateManifest(tables, job);
    tables.metadata.Close(*job.metadata);
    tables.waits.CloseQueue(job);
    tables.jobs.Remove(job);
    tables.turn.NoteProgress();
  }
}

}  // namespace tier::tiering
