// See lease_wait.h.
#include "daemon/tiering/requests/lease_wait.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/requests/holds.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"

namespace tier::tiering {
namespace {

using proto::Op;
using Place = WaitTable::Place;

bool Has(const Ask& ask, uint32_t flag) { return (ask.flags & flag) != 0; }

base::TimePoint HalfTimeOf(const Core& core, const Waiter& waiter) {
  return (waiter.timed ? waiter.arrived : core.now) + waiter.TimeoutOr(core.options.deadline_default) / 2;
}

bool MayTakeRoom(Core& core, const Waiter& waiter) {
  if (!core.waits.RoomTakenBefore(*waiter.job, waiter.number)) return true;
  return core.AskerOf(waiter).lease_count != 0 && core.now < core.waits.RoomClosesBefore(*waiter.job, waiter.number);
}

void WaitAtConflict(Core& core, const Waiter& waiter, const ConflictCheck& found) {
  const TensorSlot tensor = waiter.items[found.item].tensor.slot;
  switch (found.blocker) {
    case Blocker::kAnyLease:
    case Blocker::kUnsealed:
    case Blocker::kUpdate: return core.waits.WaitAtTensor(waiter.number, tensor);
    case Blocker::kLease:
    case Blocker::kTransfer:
    case Blocker::kClaim: return core.waits.WaitAtPiece(waiter.number, tensor, found.piece);
    case Blocker::kNone: break;
  }
  TIER_CHECK(false, "request {} is blocked by nothing", waiter.number);
}

// What it lacks may come by another request's read.
void WaitAtFirstMissing(Core& core, const Waiter& waiter, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
      return core.waits.WaitAtPiece(waiter.number, item.tensor.slot, k);
    }
  }
}

void WaitForReads(Core& core, const Waiter& waiter, const Ask& ask) {
  std::vector<Place> reads;
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (NeedsRoom(ask, item, tensor, core.PieceOf(tensor, k))) reads.push_back({item.tensor.slot, k});
    }
  }
  core.waits.WaitForReads(waiter.number, reads);
}

Outcome OnConflict(Core& core, Waiter& waiter, Conflict* conflict, const ConflictCheck& found) {
  const Ask ask = AskOf(core, waiter);
  conflict->at = {found.item, found.piece};
  if (Has(ask, proto::kFlagNoWait)) return Refused(BlockedRefusal(core, ask, found), found.item);
  const bool own_counts = Has(ask, proto::kFlagNoWaitOwn);
  if (own_counts && !core.work.TrySpend(OwnLeasesCost(*ask.session))) return core.WaitForNextTurn(waiter);
  if (own_counts && OwnLeasesBlock(core, *ask.session, found, ask)) {
    const uint64_t tensor = core.tensors[ask.items[found.item].tensor.slot].id;
    return Refused(OwnLeasesRefusal(core, *ask.session, tensor), found.item);
  }
  if (ask.exclusive() && ask.op == Op::kAcquire) ClaimAll(core, waiter);
  conflict->blocked = true;
  WaitAtConflict(core, waiter, found);
  return Waits();
}

Outcome OnLeaseConflict(Core& core, Waiter& waiter, LeaseWait* wait, const ConflictCheck& found) {
  UnpinAll(core, waiter);
  wait->starved = false;
  return OnConflict(core, waiter, &wait->conflict, found);
}

// True: what blocked it at the last look still does, and it waits there again.
bool StillBlocked(Core& core, Waiter& waiter, Conflict* conflict) {
  if (!conflict->blocked) return false;
  const Ask ask = AskOf(core, waiter);
  const ConflictCheck there = CheckConflictAt(core, ask, conflict->at.item, conflict->at.piece);
  conflict->blocked = there.verdict == Verdict::kBlocked;
  // That is all there is to know, but for a writer, whose claims may have gone with another's, and for a request that
  // does not wait for its own session's leases.
  if (conflict->blocked && there.blocker != Blocker::kLease && !Has(ask, proto::kFlagNoWaitOwn)) {
    WaitAtConflict(core, waiter, there);
    return true;
  }
  conflict->blocked = false;
  return false;
}

// It was its turn to take room, and there is not enough.
Outcome OnShortage(Core& core, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(core, waiter);
  JobState& job = *waiter.job;
  TIER_CHECK(!wait->pinned, "waiter {} is short of room and holds some", waiter.number);
  wait->starved = true;
  core.waits.WaitForRoom(waiter.number, {.lacking_pages = wait->needed_pages,
                                         .may_pass = ask.session->lease_count != 0,
                                         .closes_at = HalfTimeOf(core, waiter)});
  WaitAtFirstMissing(core, waiter, ask);
  Maintain(core, job);
  const bool failing = job.write_backoff >= kWriteFailuresBeforeRefusal &&
                       job.write_failure_count > wait->write_failures && !job.makes_windows() &&
                       job.reading_pages == 0 && job.writing_pages == 0;
  if (failing) return Refused(WriteFailureRefusal(core, job, waiter.requested_bytes), 0);
  if (Has(ask, proto::kFlagNoWaitOwn) && OwnLeasesHoldRoom(core, *ask.session)) {
    return Refused(OwnLeasesRefusal(core, *ask.session, 0), 0);
  }
  return Waits();
}

// Its leases would reach into what others are guaranteed. What it gathered goes back, until some of them end.
Outcome OnLeaseLimit(Core& core, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(core, waiter);
  UnpinAll(core, waiter);
  DropClaims(core, waiter);
  wait->missed = true;
  wait->starved = true;
  core.waits.WaitForRoom(waiter.number, {.may_pass = true, .closes_at = HalfTimeOf(core, waiter)});
  if (!Has(ask, proto::kFlagNoWaitOwn) || !OnlyOwnLeases(*ask.session)) return Waits();
  return Refused(OwnLeasesRefusal(core, *ask.session, 0), 0);
}

// Somebody else is to be given room first.
Outcome WaitBehind(Core& core, Waiter& waiter, LeaseWait* wait) {
  UnpinAll(core, waiter);
  wait->starved = true;
  core.waits.WaitForRoom(waiter.number, {.may_pass = core.AskerOf(waiter).lease_count != 0});
  WaitAtFirstMissing(core, waiter, AskOf(core, waiter));
  return Waits();
}

// Its pieces have room: what is left is to read some.
Outcome OnReserved(Core& core, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(core, waiter);
  wait->starved = false;
  const ConflictCheck found = CheckConflicts(core, ask);
  switch (found.verdict) {
    case Verdict::kReady: return Ready();
    case Verdict::kBlocked: return OnLeaseConflict(core, waiter, wait, found);
    case Verdict::kRefused: return Refused(RefusalOf(core, ask, found), found.item);
    case Verdict::kNeedsRoom: break;
  }
  WaitForReads(core, waiter, ask);
  return Waits();
}

Outcome TryReserve(Core& core, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(core, waiter);
  wait->missed = true;
  DropClaims(core, waiter);
  wait->needed_pages = NeedOf(core, ask).pages();
  if (wait->needed_pages != 0 && !MayTakeRoom(core, waiter)) return WaitBehind(core, waiter, wait);
  if (!PinAll(core, waiter)) {  // Some piece has as many pins as it can count.
    core.waits.WaitAtPiece(waiter.number, ask.items.front().tensor.slot, ask.items.front().first_piece);
    return Waits();
  }
  const bool complete = (AwaitsPlace(core, ask) && ReserveInPlace(core, ask)) || Reserve(core, ask);
  if (complete) return OnReserved(core, waiter, wait);
  wait->needed_pages = NeedOf(core, ask).pages();
  wait->needed_pages -= std::min(wait->needed_pages - 1, VacatedBy(core, ask).pages);
  UnpinAll(core, waiter);
  return OnShortage(core, waiter, wait);
}

}  // namespace

Outcome AdvanceLease(Core& core, Waiter& waiter) {
  LeaseWait* const wait = &std::get<LeaseWait>(waiter.kind);
  if (StillBlocked(core, waiter, &wait->conflict)) return Waits();
  const Ask ask = AskOf(core, waiter);
  AddPieces(core, ask);
  if (AwaitsPlace(core, ask)) {
    if (std::optional<Refusal> refusal = PlaceRefusal(core, ask)) return Refused(*std::move(refusal), 0);
  }
  const ConflictCheck found = CheckConflicts(core, ask);
  if (found.verdict == Verdict::kRefused) return Refused(RefusalOf(core, ask, found), found.item);
  if (found.verdict == Verdict::kBlocked) return OnLeaseConflict(core, waiter, wait, found);
  const bool fits = LeasesFit(core, ask);
  if (fits && found.verdict == Verdict::kReady) return Ready();
  Outcome outcome = fits ? TryReserve(core, waiter, wait) : OnLeaseLimit(core, waiter, wait);
  if (outcome.progress != Progress::kWaits || !Has(ask, proto::kFlagNoWait)) return outcome;
  Refusal refusal = NoMemoryRefusal(core, *waiter.job, waiter.requested_bytes);
  refusal.code = Code::kTimeout;
  refusal.detail = "not in RAM now, and the request must not wait; " + refusal.detail;
  return Refused(std::move(refusal), found.item);
}

Outcome AdvanceFree(Core& core, Waiter& waiter) {
  FreeWait* const wait = &std::get<FreeWait>(waiter.kind);
  if (StillBlocked(core, waiter, &wait->conflict)) return Waits();
  const Ask ask = AskOf(core, waiter);
  const ConflictCheck found = CheckConflicts(core, ask);
  if (found.verdict == Verdict::kRefused) return Refused(RefusalOf(core, ask, found), found.item);
  return found.verdict == Verdict::kBlocked ? OnConflict(core, waiter, &wait->conflict, found) : Ready();
}

}  // namespace tier::tiering
