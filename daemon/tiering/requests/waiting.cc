// See waiting.h.
#include "daemon/tiering/requests/waiting.h"

#include <algorithm>

#include "daemon/tiering/durability/manifest_capture.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/enumeration.h"
#include "daemon/tiering/requests/flush.h"
#include "daemon/tiering/requests/holds.h"
#include "daemon/tiering/requests/lease_wait.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/releases.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/scans.h"

namespace tier::tiering {
namespace {

using proto::Op;

constexpr uint32_t kRoundsMax = 8;

void CountWait(Core& core, const Waiter& waiter) {
  const base::Duration waited = waiter.timed ? core.now - waiter.arrived : base::Duration{0};
  waiter.job->counters.stall_ns += core.figures.CountWait(waited);
}

void Remove(Core& core, Waiter& waiter) {
  JobState& job = *waiter.job;
  if (std::holds_alternative<LeaseWait>(waiter.kind)) {
    UnpinAll(core, waiter);
    DropClaims(core, waiter);
  }
  if (std::holds_alternative<PersistWait>(waiter.kind)) DropCapture(core, waiter);
  SessionState& session = core.AskerOf(waiter);
  TIER_CHECK(session.waiter_count != 0, "waiter {}", waiter.number);
  --session.waiter_count;
  session.releasing -= std::holds_alternative<ReleaseWait>(waiter.kind) ? 1 : 0;
  EndEnumeration(core, session, waiter);
  core.waits.Remove(waiter.number);
  core.waits.OnRoom(job);  // What it had pinned can be evicted.
  core.made_progress = true;
}

void CountRanges(Waiter& waiter) {
  if (waiter.op != Op::kAcquire) return;
  JobCounters& counters = waiter.job->counters;
  (std::get<LeaseWait>(waiter.kind).missed ? counters.acquire_misses : counters.acquire_hits) += waiter.items.size();
}

// What it asked for can be had now.
void GrantWaiter(Core& core, Waiter& waiter) {
  CountRanges(waiter);
  CountWait(core, waiter);
  const Ask ask = AskOf(core, waiter);
  if (ask.op == Op::kFree) {
    AnswerValue(core, *ask.session, ask.sequence, ask.op, DetachAll(core, ask.items));
  } else {
    TakePlace(core, ask);
    Grant(core, ask);
  }
  Remove(core, waiter);
}

// A creation that comes to nothing leaves nothing behind.
void GiveUpCreation(Core& core, Op op, std::span<const WaitItem> items) {
  if (op == Op::kCreate) DetachAll(core, items);
}

void FinishWaiter(Core& core, Waiter& waiter, uint64_t value) {
  AnswerValue(core, core.AskerOf(waiter), waiter.sequence, waiter.op, value);
  Remove(core, waiter);
}

void RefuseWaiter(Core& core, Waiter& waiter, Refusal refusal, uint64_t item) {
  SessionState& session = core.AskerOf(waiter);
  const Answered to{waiter.sequence, waiter.op, item};
  CountWait(core, waiter);
  // It is removed next. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::vector<WaitItem> items = waiter.items;
  Remove(core, waiter);
  GiveUpCreation(core, to.op, items);
  AnswerRefusal(core, session, to, std::move(refusal));
}

// As the unit that worked on it reports.
void End(Core& core, Waiter& waiter, Outcome outcome) {
  switch (outcome.progress) {
    case Progress::kWaits: return;
    case Progress::kReady: return GrantWaiter(core, waiter);
    case Progress::kFinished: return FinishWaiter(core, waiter, outcome.value);
    case Progress::kAnswered: return Remove(core, waiter);
    case Progress::kRefused: return RefuseWaiter(core, waiter, std::move(outcome.refusal), outcome.item);
  }
}

uint32_t CostOfLook(const Waiter& waiter) {
  const Conflict* conflict = ConflictOf(waiter.kind);
  return conflict != nullptr && conflict->blocked ? 1 : waiter.work_cost;
}

void Advance(Core& core, Waiter& waiter) {
  struct {
    Core& core;
    Waiter& waiter;
    Outcome operator()(LeaseWait&) const { return AdvanceLease(core, waiter); }
    Outcome operator()(FreeWait&) const { return AdvanceFree(core, waiter); }
    Outcome operator()(FlushWait&) const { return AdvanceFlush(core, waiter); }
    Outcome operator()(PersistWait&) const { return AdvanceFlush(core, waiter); }
    Outcome operator()(ScanWait&) const { return AdvanceScan(core, waiter); }
    Outcome operator()(ReleaseWait&) const { return AdvanceRelease(core, waiter); }
  } const advance{core, waiter};
  End(core, waiter, std::visit(advance, waiter.kind));
}

// The item that a refusal at the deadline is about.
uint64_t ItemAtDeadline(const Waiter& waiter) {
  if (const Conflict* conflict = ConflictOf(waiter.kind)) return conflict->at.item;
  return std::holds_alternative<ScanWait>(waiter.kind) ? 0 : waiter.flush().written.item;
}

}  // namespace

uint32_t CostOf(const Core& core, const Ask& ask) {
  if (ask.op == Op::kRelease) return 0;  // It pays for each lease.
  uint32_t cost = 1;
  // The others go over their pieces with a cursor.
  if (ask.op == Op::kFree) cost += static_cast<uint32_t>(ask.items.size());
  if (ask.op == Op::kCreate || ask.op == Op::kAcquire) {
    for (const WaitItem& item : ask.items) cost += item.piece_count;
    cost += 2 * PlacePieces(core, ask);  // Looked at, and freed.
  }
  TIER_CHECK(cost <= kLookMax, "a look at request {} costs {}", ask.sequence, cost);
  return cost;
}

void Enqueue(Core& core, const Ask& ask, Enqueued request) {
  Waiter kept{.session = ask.session->id,
              .session_slot = ask.session->slot,
              .job = ask.session->job,
              .sequence = ask.sequence,
              .op = ask.op,
              .flags = ask.flags,
              .timeout_ms = std::min(request.timeout_ms, proto::kTimeoutMaxMs),
              .requested_bytes = request.requested_bytes,
              .items = {ask.items.begin(), ask.items.end()},
              .kind = std::move(request.kind)};
  kept.work_cost = CostOf(core, ask);
  const bool leases = std::holds_alternative<LeaseWait>(kept.kind);
  if (leases) kept.grant_cost = GrantCost(core, ask);
  std::optional<Refusal> refusal;
  if (ask.op != Op::kRelease) refusal = core.metadata.Check(*ask.session, RequestCost(kept), !leases);
  if (refusal) {
    GiveUpCreation(core, ask.op, kept.items);
    return AnswerRefusal(core, *ask.session, {ask.sequence, ask.op, 0}, *std::move(refusal));
  }
  Waiter& waiter = core.waits.Add(std::move(kept));
  ++ask.session->waiter_count;
  ask.session->releasing += std::holds_alternative<ReleaseWait>(waiter.kind) ? 1 : 0;
  if (core.work.TrySpend(waiter.work_cost)) return Advance(core, waiter);
  core.WaitForNextTurn(waiter);
}

void FinishReleases(Core& core, const SessionState& session) {
  for (const uint64_t number : core.waits.ListSession(session.slot)) {
    Waiter& waiter = *core.waits.Find(number);
    if (std::holds_alternative<ReleaseWait>(waiter.kind)) End(core, waiter, FinishRelease(core, waiter));
  }
}

void RunWaiters(Core& core, JobState& job) {
  // A grant or refusal may help those before it. What more rounds or looks would bring, the next turns bring.
  for (uint32_t round = 0; round < kRoundsMax; ++round) {
    uint64_t given = 0;
    while (const uint64_t number = core.waits.NextReady(job)) {
      if (!core.work.TrySpend(CostOfLook(*core.waits.Find(number)))) {
        core.waits.GiveAgain(job);
        core.made_progress = true;
        return;
      }
      ++given;
      Waiter& waiter = core.waits.Take(number);
      if (waiter.scans()) {  // Whatever there is: some of the turn is left to the requests behind it.
        core.work.Divide(2, [&] { Advance(core, waiter); });
      } else {
        Advance(core, waiter);
      }
    }
    if (given == 0) return;
  }
}

void ExpireWaiters(Core& core) {
  while (const uint64_t number = core.waits.NextExpired(core.now)) {
    Waiter& waiter = *core.waits.Find(number);
    if (!waiter.has_deadline()) {
      core.waits.DropDeadline(number);
      continue;
    }
    if (!core.work.TrySpend(waiter.work_cost)) {  // The next turn is due at once: the deadline is past.
      core.made_progress = true;
      return;
    }
    RefuseWaiter(core, waiter, DeadlineRefusal(core, waiter), ItemAtDeadline(waiter));
  }
}

void RefuseFailedReads(Core& core) {
  for (const FailedRead& failed : core.reports.TakeFailedReads()) {
    if (!core.Alive(failed.tensor)) continue;
    for (const uint64_t number : failed.waiters) {
      Waiter* const waiter = core.waits.Find(number);
      if (waiter == nullptr) continue;
      const auto names = [&](const WaitItem& item) {
        return item.tensor == failed.tensor && failed.piece - item.first_piece < item.piece_count;
      };
      const auto item = std::ranges::find_if(waiter->items, names);
      if (item == waiter->items.end()) continue;
      RefuseWaiter(core, *waiter, failed.refusal, static_cast<uint64_t>(item - waiter->items.begin()));
    }
  }
}

void AnswerCommitted(Core& core) {
  for (CommittedManifest& committed : core.reports.TakeCommitted()) {
    Waiter* const waiter = core.waits.Find(committed.waiter);
    if (waiter != nullptr) End(core, *waiter, std::move(committed.outcome));
  }
}

void FinishInternal(Core& core, JobState& job) {
  for (const uint64_t number : core.waits.ListJob(job)) {
    Waiter& waiter = *core.waits.Find(number);
    if (waiter.session == kInternalSession) FinishWaiter(core, waiter, 0);
  }
}

void DropWaitersOf(Core& core, SessionState& session) {
  if (session.releasing != 0) FinishReleases(core, session);  // What it sealed is sealed.
  for (const uint64_t number : core.waits.ListSession(session.slot)) {
    Waiter& waiter = *core.waits.Find(number);
    // The rest goes by its name.
    if (AwaitsPlace(core, AskOf(core, waiter))) GiveUpCreation(core, waiter.op, waiter.items);
    Remove(core, waiter);
  }
  TIER_CHECK(session.waiter_count == 0, "{} waiters left", session.waiter_count);
}

void RefuseAll(Core& core, JobState& job, const Refusal& refusal) {
  for (const uint64_t number : core.waits.ListJob(job)) {
    Waiter& waiter = *core.waits.Find(number);
    if (waiter.has_deadline()) RefuseWaiter(core, waiter, refusal, 0);
  }
}

}  // namespace tier::tiering
