// See lease_wait.h.
#include "daemon/tiering/requests/lease_wait.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/gathering.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/requests/holds.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/scattered_room.h"

namespace tier::tiering {
namespace {

using proto::Op;
using Place = WaitTable::Place;

bool Has(const Ask& ask, uint32_t flag) { return (ask.flags & flag) != 0; }

base::TimePoint HalfTimeOf(const Tables& tables, const Waiter& waiter) {
  return (waiter.timed ? waiter.arrived : tables.turn.now()) + waiter.TimeoutOr(tables.options.deadline_default) / 2;
}

bool MayTakeRoom(Tables& tables, const Waiter& waiter) {
  if (!tables.waits.RoomTakenBefore(*waiter.job, waiter.number)) return true;
  return tables.AskerOf(waiter).record.lease_count != 0 &&
         !tables.waits.RoomClosedBefore(*waiter.job, waiter.number, tables.turn.now());
}

void WaitAtConflict(Tables& tables, const Waiter& waiter, const ConflictCheck& found) {
  const TensorIndex tensor = waiter.items[found.item].tensor.index;
  switch (found.cause) {
    case ConflictCause::kAnyLease:
    case ConflictCause::kUnsealed:
    case ConflictCause::kUpdate: return tables.waits.WaitAtTensor(waiter.number, tensor);
    case ConflictCause::kLease:
    case ConflictCause::kTransfer:
    case ConflictCause::kClaim: return tables.waits.WaitAtPiece(waiter.number, tensor, found.piece);
    case ConflictCause::kNone: break;
  }
  TIER_CHECK(false, "request {} is blocked by nothing", waiter.number);
}

// What it lacks may come by another request's read.
void WaitAtFirstMissing(Tables& tables, const Waiter& waiter, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (!Missing(ask, item, tensor, tables.PieceOf(tensor, k))) continue;
      return tables.waits.WaitAtPiece(waiter.number, item.tensor.index, k);
    }
  }
}

// False: nothing has to be read.
bool WaitForReads(Tables& tables, const Waiter& waiter, const Ask& ask) {
  std::vector<Place> reads;
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (NeedsRoom(ask, item, tensor, tables.PieceOf(tensor, k))) reads.push_back({item.tensor.index, k});
    }
  }
  if (reads.empty()) return false;
  tables.waits.WaitForReads(waiter.number, reads);
  return true;
}

Outcome OnConflict(Tables& tables, Waiter& waiter, Conflict* conflict, const ConflictCheck& found) {
  const Ask ask = AskOf(tables, waiter);
  conflict->at = {found.item, found.piece};
  if (Has(ask, proto::kFlagNoWait)) {
    tables.work.Charge(kRefusalCost);
    return Refused(BlockedRefusal(tables, ask, found), found.item);
  }
  const bool own_counts = Has(ask, proto::kFlagNoWaitOwn);
  if (own_counts && !tables.work.TrySpend(OwnLeasesCost(*ask.session))) return tables.WaitForNextTurn(waiter);
  if (own_counts && OwnLeasesBlock(tables, *ask.session, found, ask)) {
    const uint64_t tensor = tables.tensors[ask.items[found.item].tensor.index].id;
    return Refused(OwnLeasesRefusal(tables, *ask.session, tensor), found.item);
  }
  if (ask.exclusive() && ask.op == Op::kAcquire) ClaimAll(tables, waiter);
  conflict->blocked = true;
  WaitAtConflict(tables, waiter, found);
  return Waits();
}

Outcome OnLeaseConflict(Tables& tables, Waiter& waiter, LeaseWait* wait, const ConflictCheck& found) {
  UnpinAll(tables, waiter);
  wait->starved = false;
  return OnConflict(tables, waiter, &wait->conflict, found);
}

// True: what blocked it at the last look still does, and it waits there again.
bool StillBlocked(Tables& tables, Waiter& waiter, Conflict* conflict) {
  if (!conflict->blocked) return false;
  const Ask ask = AskOf(tables, waiter);
  const ConflictCheck there = CheckConflictAt(tables, ask, conflict->at.item, conflict->at.piece);
  conflict->blocked = there.outcome == ConflictOutcome::kBlocked;
  tables.work.Charge(CostOfRecordsScanned(there));
  // That is all there is to know, except for a writer, whose claims may have gone with another's, and for a request
  // that does not wait for its own session's leases.
  if (conflict->blocked && there.cause != ConflictCause::kLease && !Has(ask, proto::kFlagNoWaitOwn)) {
    WaitAtConflict(tables, waiter, there);
    return true;
  }
  conflict->blocked = false;
  return false;
}

// It was its turn to take room, and there is not enough.
Outcome OnShortage(Tables& tables, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(tables, waiter);
  JobState& job = *waiter.job;
  TIER_CHECK(!wait->pinned, "waiter {} is short of room and holds some", waiter.number);
  wait->starved = true;
  const bool leaseless = ask.session->record.lease_count == 0;
  tables.waits.WaitForRoom(waiter.number, {.lacking_pages = wait->needed_pages,
                                           .may_pass = !leaseless,
                                           .leaseless = leaseless,
                                           .closes_at = HalfTimeOf(tables, waiter)});
  WaitAtFirstMissing(tables, waiter, ask);
  Maintain(tables, job);
  const bool failing = job.failures.in_a_row() >= kWriteFailuresBeforeRefusal &&
                       job.failures.count() > wait->write_failures && !RoomComesWithoutWrite(tables, job);
  if (failing) return Refused(WriteFailureRefusal(tables, waiter), 0);
  if (Has(ask, proto::kFlagNoWaitOwn) && OwnLeasesHoldRoom(tables, *ask.session)) {
    return Refused(OwnLeasesRefusal(tables, *ask.session, 0), 0);
  }
  return Waits();
}

// Its leases would reach into what others are guaranteed. What it gathered goes back, until some leases end: of its
// job, or of other jobs that lease beyond their guarantees.
Outcome OnLeaseLimit(Tables& tables, Waiter& waiter, LeaseWait* wait, LeaseFit fit) {
  const Ask ask = AskOf(tables, waiter);
  UnpinAll(tables, waiter);
  DropClaims(tables, waiter);
  wait->missed = wait->missed || fit != LeaseFit::kHeldBack;
  wait->starved = true;
  const bool leaseless = ask.session->record.lease_count == 0;
  const bool others = fit != LeaseFit::kOwnLeases;
  const EntitlementIndex job = waiter.job->entitlement;
  const uint64_t leased = tables.ledger.LeasedBy(job) + waiter.requested_bytes;
  tables.waits.WaitForRoom(waiter.number,
                           {.may_pass = true,
                            .leaseless = leaseless,
                            .other_leases = others,
                            .owed_leases = fit == LeaseFit::kOtherLeases && leased <= tables.ledger.PromisedTo(job),
                            .closes_at = HalfTimeOf(tables, waiter)});
  if (others || !Has(ask, proto::kFlagNoWaitOwn) || !OnlyOwnLeases(*ask.session)) return Waits();
  return Refused(OwnLeasesRefusal(tables, *ask.session, 0), 0);
}

// It could be granted, and its blocks move side by side first.
Outcome AwaitRuns(Tables& tables, Waiter& waiter, LeaseWait* wait) {
  tables.waits.WaitAtTensor(waiter.number, waiter.items.front().tensor.index);  // If it is freed meanwhile.
  WantRun(tables, waiter);
  wait->awaits_runs = true;
  wait->starved = false;
  return Waits();
}

// Another request is to be given room first.
Outcome WaitBehind(Tables& tables, Waiter& waiter, LeaseWait* wait) {
  UnpinAll(tables, waiter);
  wait->starved = true;
  const bool leaseless = tables.AskerOf(waiter).record.lease_count == 0;
  tables.waits.WaitForRoom(waiter.number, {.may_pass = !leaseless, .leaseless = leaseless});
  WaitAtFirstMissing(tables, waiter, AskOf(tables, waiter));
  return Waits();
}

Outcome TryReserve(Tables& tables, Waiter& waiter, LeaseWait* wait) {
  const Ask ask = AskOf(tables, waiter);
  wait->missed = true;
  DropClaims(tables, waiter);
  wait->needed_pages = NeedOf(tables, ask).pages();
  if (wait->needed_pages != 0 && !MayTakeRoom(tables, waiter)) return WaitBehind(tables, waiter, wait);
  if (const std::optional<PieceId> full = PinAll(tables, waiter)) {
    tables.waits.WaitAtPiece(waiter.number, tables.pieces[*full].tensor, tables.pieces[*full].number);
    return Waits();
  }
  const bool may_be_scattered = !std::exchange(wait->not_scattered, false);
  const bool in_place = AwaitsPlace(tables, ask) && ReserveInPlace(tables, ask);
  const Reserved reserved = in_place ? Reserved::kAll : Reserve(tables, ask, may_be_scattered);
  if (reserved ==
      Reserved::kAll) {  // Its pieces are pinned and have room, and nothing conflicts: what is left is to read some.
    wait->starved = false;
    return WaitForReads(tables, waiter, ask) ? Waits() : Ready();
  }
  wait->needed_pages = NeedOf(tables, ask).pages();
  wait->needed_pages -= std::min(wait->needed_pages - 1, VacatedBy(tables, ask).pages);
  UnpinAll(tables, waiter);
  if (reserved == Reserved::kScattered) WantRun(tables, waiter);
  return OnShortage(tables, waiter, wait);
}

}  // namespace

Outcome AdvanceLease(Tables& tables, Waiter& waiter, const ConflictCheck* known) {
  LeaseWait* const wait = &std::get<LeaseWait>(waiter.kind);
  wait->awaits_runs = false;
  if (StillBlocked(tables, waiter, &wait->conflict)) return Waits();
  const Ask ask = AskOf(tables, waiter);
  AddPieces(tables, ask);
  if (AwaitsPlace(tables, ask)) {
    if (std::optional<Refusal> refusal = PlaceRefusal(tables, ask)) return Refused(*std::move(refusal), 0);
  }
  const ConflictCheck found = known != nullptr ? *known : CheckConflicts(tables, ask);
  if (known == nullptr) tables.work.Charge(CostOfRecordsScanned(found));
  if (found.outcome == ConflictOutcome::kRefused) return Refused(RefusalOf(tables, ask, found), found.item);
  if (found.outcome == ConflictOutcome::kBlocked) return OnLeaseConflict(tables, waiter, wait, found);
  const LeaseFit fit = FitOfLeases(tables, ask, wait->pinned);
  const bool fits = fit == LeaseFit::kFits;
  if (fits && found.outcome == ConflictOutcome::kReady) {
    const bool gathers = !wait->as_it_is && wait->gathers < GathersMax(ask.items) && WantsRuns(tables, ask);
    return gathers ? AwaitRuns(tables, waiter, wait) : Ready();
  }
  Outcome outcome = fits ? TryReserve(tables, waiter, wait) : OnLeaseLimit(tables, waiter, wait, fit);
  if (outcome.progress != Progress::kWaits || !Has(ask, proto::kFlagNoWait)) return outcome;
  tables.work.Charge(kRefusalCost);
  const bool held_back = fit == LeaseFit::kHeldBack;
  Refusal refusal = held_back ? HeldBackRefusal(tables, *waiter.job, waiter.requested_bytes)
                              : NoMemoryRefusal(tables, *waiter.job, waiter.requested_bytes);
  refusal.code = Code::kTimeout;
  refusal.detail =
      fmt::format("not {} now, and the request must not wait; {}", held_back ? "granted" : "in RAM", refusal.detail);
  return Refused(std::move(refusal), found.item);
}

Outcome AdvanceFree(Tables& tables, Waiter& waiter) {
  FreeWait* const wait = &std::get<FreeWait>(waiter.kind);
  if (StillBlocked(tables, waiter, &wait->conflict)) return Waits();
  const Ask ask = AskOf(tables, waiter);
  const ConflictCheck found = CheckConflicts(tables, ask);
  tables.work.Charge(CostOfRecordsScanned(found));
  if (found.outcome == ConflictOutcome::kRefused) return Refused(RefusalOf(tables, ask, found), found.item);
  return found.outcome == ConflictOutcome::kBlocked ? OnConflict(tables, waiter, &wait->conflict, found) : Ready();
}

}  // namespace tier::tiering
