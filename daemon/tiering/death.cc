// See death.h.
#include "daemon/tiering/death.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/tiering/catalog.h"
#include "daemon/tiering/grants.h"
#include "daemon/tiering/graveyard.h"
#include "daemon/tiering/persist.h"
#include "daemon/tiering/residency.h"
#include "daemon/tiering/reversal.h"
#include "daemon/tiering/rewrite.h"
#include "daemon/tiering/tenancy.h"
#include "daemon/tiering/waiting.h"

namespace tier::tiering {
namespace {

// Leases that it was granted but never told of: it cannot have written a byte. They are its newest.
void WithdrawUntold(Core& core, SessionState& session) {
  for (LeaseSlot slot = session.leases; slot != kNoLease;) {
    const LeaseSlot next = core.leases[slot].next;
    const Lease& lease = core.leases[slot];
    if (lease.publication != core.publications) return;
    if (lease.exclusive()) Withdraw(core, slot);
    slot = next;
  }
}

void SpendOn(Core& core, const Lease& lease) {
  core.burials_left -= std::min(core.burials_left, lease.piece_count + 1);
}

// Ends read leases, and collects what is under the others.
bool EndReadLeases(Core& core, Departure& departure) {
  while (departure.next != kNoLease && core.burials_left != 0) {
    const LeaseSlot slot = departure.next;
    const Lease& lease = core.leases[slot];
    departure.next = lease.next;
    SpendOn(core, lease);
    if (lease.exclusive()) {
      AddToReversal(core, lease, &departure.reversal);
    } else {
      Release(core, slot);
    }
  }
  return departure.next == kNoLease;
}

// As far as the turn reaches. True: the session has no lease any more.
bool EndLeases(Core& core, Departure& departure) {
  SessionState& session = *departure.session;
  if (!EndReadLeases(core, departure)) return false;
  if (!JudgeReversal(core, session, &departure.reversal, &core.burials_left)) return false;
  while (session.leases != kNoLease && core.burials_left != 0) {
    const LeaseSlot slot = session.leases;
    SpendOn(core, core.leases[slot]);
    RevertLease(core, core.leases[slot]);
    EndLease(core, slot);
  }
  return session.leases == kNoLease;
}

void Forget(Core& core, const SessionState& session) {
  TIER_CHECK(session.lease_count == 0 && session.leased_bytes == 0, "session {} holds {} leases",
             static_cast<uint64_t>(session.id), session.lease_count);
  core.sessions[session.slot].reset();
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
  while (!job.waiters.empty() && job.waiters.front().session == kDaemonItself) {
    FinishWaiter(core, job.waiters.begin(), 0);
  }
  TIER_CHECK(job.sessions.empty() && job.waiters.empty(), "sessions {} waiters {}", job.sessions.size(),
             job.waiters.size());
  // All of an ephemeral job goes with it: what it committed, that is (AdoptManifest gives it nothing else).
  if (!job.options.named && HasCommitted(core, job)) ForgetManifest(core, job);
  Bury(core, job, &job.shared_tensors, 0);
  Bury(core, job, &job.inherited_tensors, kInheritedSpace);
  job.closing = true;
  job.prefetches.clear();
  const auto found = core.jobs.find(job.id);
  core.closing_jobs.push_back(std::move(found->second));
  core.jobs.erase(found);
  for (const auto& [id, other] : core.jobs) other->pump = true;  // The arena has room again, now or soon.
}

}  // namespace

void Abandon(Core& core, LeaseSlot slot) {
  const Lease& lease = core.leases[slot];
  SessionState& session = *core.sessions[lease.session];
  const TensorRef tensor = core.RefOf(lease.tensor);
  Reversal reversal;
  uint32_t budget = UINT32_MAX;
  AddToReversal(core, lease, &reversal);
  JudgeReversal(core, session, &reversal, &budget);
  RevertLease(core, lease);
  const bool attached = !core.tensors[tensor.slot].has(kDetached);
  const bool visible = core.tensors[tensor.slot].has(kVisible);
  EndLease(core, slot);
  if (attached && !visible) Detach(core, tensor.slot);
}

void Withdraw(Core& core, LeaseSlot slot) {
  const Lease& lease = core.leases[slot];
  const TensorSlot tensor_slot = lease.tensor;
  const Tensor& tensor = core.tensors[tensor_slot];
  TIER_CHECK(lease.exclusive(), "lease {} is shared", Value(slot));
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    Piece& piece = core.pieces[id];
    // What was to be overwritten whole may have been given room without its bytes.
    const bool hollow = piece.copies == Copies::kRamSsd && lease.discard;
    if (piece.copies == Copies::kRamSsd) piece.generation = piece.ssd_generation;
    SetState(core, id, {hollow ? Copies::kSsd : piece.copies, Activity::kNone});
    if (!hollow) continue;
    piece.set(kReserved);
    if (piece.pins == 0) DropRam(core, id);
  }
  // Others of its ranges may have made it visible before the create was granted.
  const bool created = lease.kind == LeaseKind::kCreate && !tensor.has(kDetached | kVisible);
  EndLease(core, slot);
  if (created) Detach(core, tensor_slot);
}

void EndSession(Core& core, SessionState& session, const Ending& ending) {
  JobState& job = *session.job;
  const SessionId id = session.id;
  DropWaitersOf(core, session);
  WithdrawUntold(core, session);
  TearRewrites(core, session);
  Departure departure{.session = &session, .next = session.leases, .reversal = {}};
  const bool departed = EndLeases(core, departure);
  Bury(core, job, &session.tensors, static_cast<uint64_t>(id));
  FreeCreations(core, session);
  ForgetMappings(core, session);
  std::erase(job.sessions, &session);
  core.replies.Forget(id);
  if (ending.code != Code::kOk) core.replies.SessionEnded(id, ending.code, ending.reason);
  core.last_session = nullptr;
  core.session_by_id.erase(id);
  if (departed) {
    Forget(core, session);
  } else {
    ++job.departing;
    core.departures.push_back(std::move(departure));
  }
  job.pump = true;
  core.acted = true;
  if (!job.sessions.empty()) return;
  KeepForResume(core, job);
  if (!job.options.named && !job.closing) CloseNow(core, job);
}

void GoOnWithDepartures(Core& core) {
  core.acted |= !core.departures.empty();
  size_t count = core.departures.size();
  for (size_t i = 0; i < core.departures.size() && core.burials_left != 0;) {
    SessionState& session = *core.departures[i].session;
    bool departed = false;
    SpendPart(core, count--, [&] { departed = EndLeases(core, core.departures[i]); });
    if (!departed) {
      ++i;
      continue;
    }
    --session.job->departing;
    Forget(core, session);
    core.departures.erase(core.departures.begin() + static_cast<ptrdiff_t>(i));
  }
}

void EndAfterWindowFault(Core& core, JobState& job, PieceId id) {
  std::string place;
  if (id != kNoPiece) {
    Piece& piece = core.pieces[id];
    const TensorSlot tensor = piece.tensor;
    place = fmt::format(" (tensor {:#x} at byte {})", core.tensors[tensor].id, uint64_t{piece.number} * kBlockSize);
    switch (piece.activity) {
      case Activity::kWritingOut:
        SetState(core, id, {Copies::kTorn, Activity::kNone});
        if (!core.tensors[tensor].has(kDetached) && !piece.has(kMixed)) AddTornPiece(core, tensor);
        piece.clear(kMixed);
        break;
      case Activity::kReadingIn:
        SetState(core, id, {Copies::kSsd, Activity::kNone});
        piece.set(kReserved);
        if (piece.pins == 0) DropRam(core, id);
        break;
      default: SetState(core, id, {piece.copies, Activity::kNone});
    }
  }
  const Ending ending{
      Code::kRevoked,
      fmt::format("memory of a window of job {} could not be touched{}: one of its processes took it away "
                  "(punched a hole or truncated); all sessions of the job end",
                  job.options.key, place)};
  const std::vector<SessionState*> sessions = job.sessions;
  for (SessionState* session : sessions) EndSession(core, *session, ending);
}

void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget) {
  const std::vector<SessionState*> sessions = job.sessions;
  const bool ephemeral = !job.options.named;
  const JobId id = job.id;
  if (forget && !ephemeral) ForgetManifest(core, job);  // An ephemeral job's goes with it; an earlier run's stays.
  for (SessionState* session : sessions) EndSession(core, *session, {Code::kRevoked, reason});
  if (ephemeral && !sessions.empty()) return;  // Went with its last session.
  TIER_CHECK(core.FindJob(id) == &job, "job {}", static_cast<uint64_t>(id));
  CloseNow(core, job);
}

void SweepClosedJobs(Core& core) {
  for (size_t i = 0; i < core.closing_jobs.size();) {
    JobState& job = *core.closing_jobs[i];
    if (job.transfer_count != 0 || job.burying()) {
      ++i;
      continue;
    }
    TIER_CHECK(
        job.counters.tensor_count == 0 && job.dirty_pages == 0 && job.logical_pages == 0 && job.unnamed_pages == 0,
        "tensors {} dirty {} logical {} unnamed {}", job.counters.tensor_count, job.dirty_pages, job.logical_pages,
        job.unnamed_pages);
    if (!job.windows.empty()) {
      RetireAll(core, job);
      for (const auto& [id, other] : core.jobs) other->pump = true;
      core.acted = true;
    }
    if (ManifestUnderWay(core, job)) {
      ++i;
      continue;
    }
    ParkManifest(core, job);
    AddCounters(job.counters, &core.closed_totals);
    std::swap(core.closing_jobs[i], core.closing_jobs.back());
    core.closing_jobs.pop_back();
    core.acted = true;
  }
}

}  // namespace tier::tiering
