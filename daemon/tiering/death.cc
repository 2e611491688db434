// See death.h.
#include "daemon/tiering/death.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "daemon/tiering/catalog.h"
#include "daemon/tiering/grants.h"
#include "daemon/tiering/graveyard.h"
#include "daemon/tiering/persist.h"
#include "daemon/tiering/residency.h"
#include "daemon/tiering/tenancy.h"
#include "daemon/tiering/waiting.h"

namespace tier::tiering {
namespace {

// Pieces that went back to an older generation, by tensor.
struct Reverted {
  TensorRef tensor;
  PieceId piece = kNoPiece;
};

// The bytes under the lease are not final and never will be.
void RevertPiece(Core& core, PieceId id, std::vector<Reverted>* reverted) {
  Piece& piece = core.pieces[id];
  const TensorSlot slot = piece.tensor;
  reverted->push_back({core.RefOf(slot), id});
  switch (piece.copies) {
    case Copies::kRamSsd:
      piece.generation = piece.ssd_generation;
      SetState(core, id, {Copies::kSsd, Activity::kNone});
      piece.set(kReserved);
      if (piece.pins == 0) DropRam(core, id);
      return;
    case Copies::kRam:
      // It falls from a clean slate only once: a mixed piece that tears counts as it did.
      if (!piece.has(kMixed)) AddTornPiece(core, slot);
      piece.clear(kMixed);
      SetState(core, id, {Copies::kTorn, Activity::kNone});
      return;
    case Copies::kTorn: SetState(core, id, {Copies::kTorn, Activity::kNone}); return;
    default: TIER_CHECK(false, "piece {} reverts from {}", Value(id), CopiesName(piece.copies));
  }
}

// Nobody will see the tensor any more: its pieces only have to stop being leased.
void EndUnnamedWrite(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  const bool had_ssd = piece.copies == Copies::kRamSsd;
  SetState(core, id, {had_ssd ? Copies::kSsd : piece.copies, Activity::kNone});
  if (had_ssd) piece.set(kReserved);
}

void RevertLease(Core& core, const Lease& lease, std::vector<Reverted>* reverted) {
  const Tensor& tensor = core.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    if (tensor.has(kVisible) && !tensor.has(kDetached)) {
      RevertPiece(core, id, reverted);
    } else {
      EndUnnamedWrite(core, id);
    }
  }
}

bool ChangedBy(const SessionState& session, const Piece& piece) {
  const bool changed = piece.changed_by == session.slot + 1 || piece.changed_by == kChangedByMany;
  return changed && piece.changed_at >= session.mark;
}

// Whether the session changed a piece of the tensor that did not go back with the others.
bool LeavesMixture(const Core& core, const SessionState& session, const Tensor& tensor,
                   const std::unordered_set<uint32_t>& covered) {
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    if (ChangedBy(session, core.pieces[id]) && !covered.contains(Value(id))) return true;
  }
  return false;
}

void MarkMixtures(Core& core, const SessionState& session, std::vector<Reverted>& reverted) {
  std::unordered_set<uint32_t> covered;
  for (const Reverted& entry : reverted) covered.insert(Value(entry.piece));
  std::stable_sort(reverted.begin(), reverted.end(),
                   [](const Reverted& a, const Reverted& b) { return Value(a.tensor.slot) < Value(b.tensor.slot); });
  bool mixture = false;
  for (size_t i = 0; i < reverted.size(); ++i) {
    const TensorSlot slot = reverted[i].tensor.slot;
    const bool first = i == 0 || reverted[i - 1].tensor.slot != slot;
    if (first) mixture = LeavesMixture(core, session, core.tensors[slot], covered);
    Piece& piece = core.pieces[reverted[i].piece];
    if (!mixture && piece.changed_by == session.slot + 1) piece.changed_by = kChangedByNobody;
    if (!mixture || piece.copies == Copies::kTorn || piece.has(kMixed)) continue;
    piece.set(kMixed);
    AddTornPiece(core, slot);
  }
}

// Leases that it was granted but never told of: it cannot have written a byte.
void WithdrawUntold(Core& core, SessionState& session) {
  for (LeaseSlot slot = session.leases; slot != kNoLease;) {
    const LeaseSlot next = core.leases[slot].next;
    const Lease& lease = core.leases[slot];
    if (lease.exclusive() && lease.publication == core.publications) Withdraw(core, slot);
    slot = next;
  }
}

void EndLeases(Core& core, SessionState& session) {
  WithdrawUntold(core, session);
  std::vector<Reverted> reverted;
  for (LeaseSlot slot = session.leases; slot != kNoLease; slot = core.leases[slot].next) {
    if (core.leases[slot].exclusive()) RevertLease(core, core.leases[slot], &reverted);
  }
  MarkMixtures(core, session, reverted);
  while (session.leases != kNoLease) {
    const LeaseSlot slot = session.leases;
    if (core.leases[slot].exclusive()) {
      EndLease(core, slot);
    } else {
      Release(core, slot);
    }
  }
}

// Shared tensors that it was still creating come to nothing.
void FreeCreations(Core& core, SessionState& session) {
  TensorSlot slot = session.job->shared_tensors;
  while (session.creating_count != 0 && slot != kNoTensor) {
    const Tensor& tensor = core.tensors[slot];
    const TensorSlot next = tensor.next;
    if (!tensor.has(kVisible) && tensor.creator == static_cast<uint64_t>(session.id)) Detach(core, slot);
    slot = next;
  }
  TIER_CHECK(session.creating_count == 0, "{} creations left", session.creating_count);
}

void CloseNow(Core& core, JobState& job) {
  TIER_CHECK(job.sessions.empty() && job.waiters.empty(), "sessions {} waiters {}", job.sessions.size(),
             job.waiters.size());
  // All of an ephemeral job goes with it: what it committed, that is (AdoptManifest gives it nothing else).
  const bool committed =
      job.manifest.stored() || !job.manifest.empty() || ManifestUnderWay(core, job.options.key, false);
  if (!job.options.named && committed) ForgetManifest(core, job);
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
  std::vector<Reverted> reverted;
  RevertLease(core, lease, &reverted);
  MarkMixtures(core, session, reverted);
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
  const bool created = lease.kind == LeaseKind::kCreate && !tensor.has(kDetached);
  EndLease(core, slot);
  if (created) Detach(core, tensor_slot);
}

void EndSession(Core& core, SessionState& session, const Ending& ending) {
  JobState& job = *session.job;
  const SessionId id = session.id;
  DropWaitersOf(core, session);
  EndLeases(core, session);
  Bury(core, job, &session.tensors, static_cast<uint64_t>(id));
  FreeCreations(core, session);
  ForgetMappings(core, session);
  TIER_CHECK(session.lease_count == 0 && session.leased_bytes == 0, "session {} holds {} leases",
             static_cast<uint64_t>(id), session.lease_count);
  std::erase(job.sessions, &session);
  core.replies.Forget(id);
  if (ending.code != Code::kOk) core.replies.SessionEnded(id, ending.code, ending.reason);
  core.last_session = nullptr;
  core.session_by_id.erase(id);
  core.sessions[session.slot].reset();
  job.pump = true;
  core.acted = true;
  if (job.sessions.empty() && !job.options.named && !job.closing) CloseNow(core, job);
}

void EndAfterWindowFault(Core& core, JobState& job, PieceId id) {
  if (id != kNoPiece) {
    Piece& piece = core.pieces[id];
    const TensorSlot tensor = piece.tensor;
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
      fmt::format("memory of a window of job {} could not be touched: one of its processes took it away "
                  "(punched a hole or truncated); all sessions of the job end",
                  job.options.key)};
  const std::vector<SessionState*> sessions = job.sessions;
  for (SessionState* session : sessions) EndSession(core, *session, ending);
}

void CloseJob(Core& core, JobState& job, const std::string& reason, bool forget) {
  const std::vector<SessionState*> sessions = job.sessions;
  const bool ephemeral = !job.options.named;
  const JobId id = job.id;
  if (forget) ForgetManifest(core, job);
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
    TIER_CHECK(job.counters.tensor_count == 0 && job.dirty_pages == 0 && job.logical_pages == 0,
               "tensors {} dirty {} logical {}", job.counters.tensor_count, job.dirty_pages, job.logical_pages);
    RetireAll(core, job);
    ParkManifest(core, job);
    AddCounters(job.counters, &core.closed_totals);
    std::swap(core.closing_jobs[i], core.closing_jobs.back());
    core.closing_jobs.pop_back();
    for (const auto& [id, other] : core.jobs) other->pump = true;
    core.acted = true;
  }
}

}  // namespace tier::tiering
