// See waiting.h.
#include "daemon/tiering/requests/waiting.h"

#include <algorithm>
#include <chrono>

#include "daemon/tiering/durability/manifest_capture.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/enumeration.h"
#include "daemon/tiering/requests/flush.h"
#include "daemon/tiering/requests/holds.h"
#include "daemon/tiering/requests/lease_wait.h"
#include "daemon/tiering/requests/long_create.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/releases.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/scans.h"
#include "daemon/tiering/requests/stalls.h"

namespace tier::tiering {
namespace {

using proto::Op;

constexpr uint32_t kRoundsMax = 8;

void CountWait(Tables& tables, const Waiter& waiter) {
  const base::Duration waited = waiter.timed ? tables.turn.now() - waiter.arrived : base::Duration{0};
  tables.jobs.Edit(*waiter.job).counters.stall_ns += tables.figures.CountWait(waited);
}

void Remove(Tables& tables, Waiter& waiter) {
  JobState& job = *waiter.job;
  // A request that must not wait claims for the next one, which asks again.
  const bool claimed = std::holds_alternative<LeaseWait>(waiter.kind) && (waiter.flags & proto::kFlagNoWait) == 0;
  if (std::holds_alternative<LeaseWait>(waiter.kind)) {
    UnpinAll(tables, waiter);
    DropClaims(tables, waiter);
  }
  if (std::holds_alternative<PersistWait>(waiter.kind)) DropCapture(tables, waiter);
  SessionState& session = tables.AskerOf(waiter);
  session.requests.EndWait(HoldsBackNext(waiter.kind));
  EndEnumeration(tables, session, waiter);
  tables.waits.Remove(waiter.number);
  if (claimed && tables.waits.shortage_pages(job) == 0) tables.ledger.LeaveClaim(job.entitlement);
  tables.waits.OnRoom(job);  // What it had pinned can be evicted.
  tables.turn.NoteProgress();
}

void CountRanges(Tables& tables, const Waiter& waiter) {
  if (waiter.op != Op::kAcquire) return;
  JobCounters& counters = tables.jobs.Edit(*waiter.job).counters;
  (std::get<LeaseWait>(waiter.kind).missed ? counters.acquire_misses : counters.acquire_hits) += waiter.items.size();
}

// What it asked for can be had now.
void GrantWaiter(Tables& tables, Waiter& waiter) {
  CountRanges(tables, waiter);
  CountWait(tables, waiter);
  RecordStall(tables, waiter, Code::kOk);
  const Ask ask = AskOf(tables, waiter);
  if (ask.op == Op::kFree) {
    AnswerValue(tables, *ask.session, ask.sequence, ask.op, DetachAll(tables, *ask.session->job, ask.items));
  } else {
    TakePlace(tables, ask);
    Grant(tables, ask);
  }
  Remove(tables, waiter);
}

// A creation that comes to nothing leaves nothing behind.
void GiveUpCreation(Tables& tables, const JobState& job, Op op, std::span<const WaitItem> items) {
  if (op == Op::kCreate) DetachAll(tables, job, items);
}

// Its session has ended.
void Drop(Tables& tables, Waiter& waiter) {
  // The rest goes by its name, and what has leases with them.
  if (!waiter.items.empty() && AwaitsPlace(tables, AskOf(tables, waiter)))
    GiveUpCreation(tables, *waiter.job, waiter.op, waiter.items);
  Remove(tables, waiter);
}

void FinishWaiter(Tables& tables, Waiter& waiter, uint64_t value) {
  RecordStall(tables, waiter, Code::kOk);
  AnswerValue(tables, tables.AskerOf(waiter), waiter.sequence, waiter.op, value);
  Remove(tables, waiter);
}

void RefuseWaiter(Tables& tables, Waiter& waiter, Refusal refusal, uint64_t item) {
  SessionState& session = tables.AskerOf(waiter);
  if (session.ending()) return Drop(tables, waiter);
  const Answered to{waiter.sequence, waiter.op, item};
  CountWait(tables, waiter);
  RecordStall(tables, waiter, refusal.code);
  // It is removed next. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::vector<WaitItem> items = waiter.items;
  Remove(tables, waiter);
  GiveUpCreation(tables, *session.job, to.op, items);
  AnswerRefusal(tables, session, to, std::move(refusal));
}

// As the unit that worked on it reports.
void End(Tables& tables, Waiter& waiter, Outcome outcome) {
  if (outcome.progress == Progress::kWaits) return NoteWait(tables, waiter);
  if (tables.AskerOf(waiter).ending()) return Drop(tables, waiter);
  switch (outcome.progress) {
    case Progress::kWaits: return;
    case Progress::kReady: return GrantWaiter(tables, waiter);
    case Progress::kFinished: return FinishWaiter(tables, waiter, outcome.value);
    case Progress::kAnswered: return Remove(tables, waiter);
    case Progress::kRefused: return RefuseWaiter(tables, waiter, std::move(outcome.refusal), outcome.item);
  }
}

// The others pay for each lease or piece as they go on.
bool PaysAtOnce(const Waiter& waiter) {
  return std::holds_alternative<LeaseWait>(waiter.kind) || std::holds_alternative<FreeWait>(waiter.kind);
}

uint32_t CostOfLook(const Waiter& waiter) {
  const Conflict* conflict = ConflictOf(waiter.kind);
  return conflict != nullptr && conflict->blocked ? 1 : waiter.work_cost;
}

void Advance(Tables& tables, Waiter& waiter) {
  // What a session released counts though it has ended.
  const bool releases = std::holds_alternative<ReleaseWait>(waiter.kind);
  if (tables.AskerOf(waiter).ending() && !releases) return Drop(tables, waiter);
  struct {
    Tables& tables;
    Waiter& waiter;
    Outcome operator()(LeaseWait&) const { return AdvanceLease(tables, waiter); }
    Outcome operator()(FreeWait&) const { return AdvanceFree(tables, waiter); }
    Outcome operator()(FlushWait&) const { return AdvanceFlush(tables, waiter); }
    Outcome operator()(PersistWait&) const { return AdvanceFlush(tables, waiter); }
    Outcome operator()(ScanWait&) const { return AdvanceScan(tables, waiter); }
    Outcome operator()(ReleaseWait&) const { return AdvanceRelease(tables, waiter); }
    Outcome operator()(CreateWait&) const {
      Outcome outcome = AdvanceCreate(tables, waiter);
      if (outcome.progress != Progress::kAnswered) return outcome;
      CountWait(tables, waiter);
      RecordStall(tables, waiter, Code::kOk);
      return outcome;
    }
  } const advance{tables, waiter};
  End(tables, waiter, std::visit(advance, waiter.kind));
}

// A request that could be granted, and waits for moves only, does not wait for them beyond its deadline. False: it is
// no such request, or something else has come in its way.
bool GrantAsItIs(Tables& tables, const Waiter& waiter) {
  const uint64_t number = waiter.number;
  const auto* lease = std::get_if<LeaseWait>(&waiter.kind);
  if (lease == nullptr || !lease->awaits_runs) return false;
  if (!tables.waits.ready(number)) tables.waits.ContinueNextTurn(number);
  Waiter& running = tables.waits.Take(number);
  std::get<LeaseWait>(running.kind).as_it_is = true;
  Advance(tables, running);
  return tables.waits.Find(number) == nullptr;
}

// The item that a refusal at the deadline is about.
uint64_t ItemAtDeadline(const Waiter& waiter) {
  if (const Conflict* conflict = ConflictOf(waiter.kind)) return conflict->at.item;
  return std::holds_alternative<ScanWait>(waiter.kind) ? 0 : waiter.flush().written.item;
}

// As its client was told when it attached: the engine's default may have changed since.
uint32_t TimeoutOf(const SessionState& session, uint32_t asked_ms) {
  const bool by_default = asked_ms == proto::kTimeoutDefault && session.deadline_default != base::Duration::zero();
  if (!by_default) return std::min(asked_ms, proto::kTimeoutMaxMs);
  return static_cast<uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(session.deadline_default).count());
}

}  // namespace

uint32_t CostOf(const Tables& tables, const Ask& ask) {
  if (ask.op == Op::kRelease) return 0;  // It pays for each lease.
  uint32_t cost = 1;
  // The others go over their pieces with a cursor.
  if (ask.op == Op::kFree) cost += static_cast<uint32_t>(ask.items.size());
  if (ask.op == Op::kCreate || ask.op == Op::kAcquire) {
    for (const WaitItem& item : ask.items) cost += item.piece_count;
    if (!ask.items.empty()) cost += kPlaceCost * PlacePieces(tables, ask);
  }
  TIER_CHECK(cost <= kLookMax, "a look at request {} costs {}", ask.sequence, cost);
  return cost;
}

void Enqueue(Tables& tables, const Ask& ask, Enqueued request) {
  Waiter kept{.session = ask.session->id,
              .session_index = ask.session->index,
              .job = ask.session->job,
              .sequence = ask.sequence,
              .op = ask.op,
              .flags = ask.flags,
              .timeout_ms = TimeoutOf(*ask.session, request.timeout_ms),
              .requested_bytes = request.requested_bytes,
              .items = {ask.items.begin(), ask.items.end()},
              .kind = std::move(request.kind)};
  const CreateWait* const create = std::get_if<CreateWait>(&kept.kind);
  kept.work_cost = create != nullptr ? CostOfPart(*create) : CostOf(tables, ask);
  const bool leases = std::holds_alternative<LeaseWait>(kept.kind);
  if (leases) kept.grant_cost = GrantCost(tables, ask);
  std::optional<Refusal> refusal;
  if (ask.op != Op::kRelease)
    refusal = tables.metadata.Check(*ask.session, RequestCost(kept), !leases && create == nullptr);
  if (refusal) {
    GiveUpCreation(tables, *ask.session->job, ask.op, kept.items);
    return AnswerRefusal(tables, *ask.session, {ask.sequence, ask.op, 0}, *std::move(refusal));
  }
  Waiter& waiter = tables.waits.Add(std::move(kept));
  ask.session->requests.StartWait(HoldsBackNext(waiter.kind));
  if (request.put_off) {
    tables.PutOff(waiter);
    NoteWait(tables, waiter);
  } else if (!tables.work.TrySpend(waiter.work_cost)) {
    tables.WaitForNextTurn(waiter);
    NoteWait(tables, waiter);
  } else if (request.known) {
    End(tables, waiter, AdvanceLease(tables, waiter, &*request.known));
  } else {
    Advance(tables, waiter);
  }
  tables.work.Charge(kWaiterCost);  // Last: what it asks for has been tried by then.
}

void FinishReleases(Tables& tables, const SessionState& session) {
  for (const uint64_t number : tables.waits.ListSession(session.index)) {
    Waiter& waiter = *tables.waits.Find(number);
    if (std::holds_alternative<ReleaseWait>(waiter.kind)) End(tables, waiter, FinishRelease(tables, waiter));
  }
}

bool ContinueReleases(Tables& tables, const SessionState& session) {
  if (session.requests.unfinished() == 0) return true;
  for (const uint64_t number : tables.waits.ListSession(session.index)) {
    Waiter& waiter = *tables.waits.Find(number);
    if (!std::holds_alternative<ReleaseWait>(waiter.kind)) continue;
    tables.waits.Take(number);
    Advance(tables, waiter);
    if (tables.waits.Find(number) != nullptr) return false;
    tables.work.Charge(kWaiterCost);
  }
  return true;
}

void RunWaiters(Tables& tables, JobState& job) {
  // A grant or refusal may help those before it. What more rounds or looks would bring, the next turns bring.
  for (uint32_t round = 0; round < kRoundsMax; ++round) {
    uint64_t given = 0;
    while (const uint64_t number = tables.waits.NextReady(job)) {
      Waiter& next = *tables.waits.Find(number);
      const uint32_t paid = PaysAtOnce(next) ? kWaiterCost : 0;
      if (!tables.work.TrySpend(CostOfLook(next) + paid)) {
        tables.waits.GiveAgain(job);
        tables.turn.NoteProgress();
        return;
      }
      ++given;
      Waiter& waiter = tables.waits.Take(number);
      if (waiter.scans()) {  // Whatever there is: some of the turn is left to the requests behind it.
        tables.work.Divide(2, [&] { Advance(tables, waiter); });
      } else {
        Advance(tables, waiter);
      }
      if (tables.waits.Find(number) != nullptr) {
        tables.work.Refund(paid);
      } else {
        tables.work.Charge(kWaiterCost - paid);
      }
    }
    if (given == 0) return;
  }
}

void ExpireWaiters(Tables& tables) {
  while (const uint64_t number = tables.waits.NextExpired(tables.turn.now())) {
    Waiter& waiter = *tables.waits.Find(number);
    if (!waiter.has_deadline()) {
      tables.waits.DropDeadline(number);
      continue;
    }
    // The next turn is due at once: the deadline is past.
    if (!tables.work.TrySpend(waiter.work_cost + kRefusalCost + kWaiterCost)) {
      tables.turn.NoteProgress();
      return;
    }
    if (GrantAsItIs(tables, waiter)) continue;
    const uint64_t before = tables.updates.visits();
    RefuseWaiter(tables, waiter, DeadlineRefusal(tables, waiter), ItemAtDeadline(waiter));
    tables.work.Charge(static_cast<uint32_t>(tables.updates.visits() - before));
  }
}

void RefuseFailedReads(Tables& tables) {
  for (const FailedRead& failed : tables.reports.TakeFailedReads()) {
    if (!tables.Alive(failed.tensor)) continue;
    for (const uint64_t number : failed.waiters) {
      Waiter* const waiter = tables.waits.Find(number);
      if (waiter == nullptr) continue;
      const auto names = [&](const WaitItem& item) {
        return item.tensor == failed.tensor && failed.piece - item.first_piece < item.piece_count;
      };
      const auto item = std::ranges::find_if(waiter->items, names);
      if (item == waiter->items.end()) continue;
      tables.work.Charge(waiter->work_cost + kWaiterCost);
      RefuseWaiter(tables, *waiter, failed.refusal, static_cast<uint64_t>(item - waiter->items.begin()));
    }
  }
}

void AnswerCommitted(Tables& tables) {
  for (CommittedManifest& committed : tables.reports.TakeCommitted()) {
    Waiter* const waiter = tables.waits.Find(committed.waiter);
    if (waiter != nullptr) End(tables, *waiter, std::move(committed.outcome));
  }
}

void FinishInternal(Tables& tables, JobState& job) {
  for (const uint64_t number : tables.waits.ListSession(kNoSessionIndex)) {  // Of all jobs: what operators asked for.
    Waiter& waiter = *tables.waits.Find(number);
    if (waiter.job == &job) FinishWaiter(tables, waiter, 0);
  }
}

bool DropWaitersOf(Tables& tables, const SessionState& session) {
  while (const uint64_t number = tables.waits.FirstOfSession(session.index)) {
    Waiter& waiter = *tables.waits.Find(number);
    // A piece is unpinned, but not examined.
    if (!tables.work.TrySpend(waiter.work_cost / 2 + kWaiterCost)) return false;
    Drop(tables, waiter);
  }
  TIER_CHECK(session.requests.waiting() == 0, "{} requests wait", session.requests.waiting());
  return true;
}

void RefuseAll(Tables& tables, JobState& job, const Refusal& refusal) {
  for (const uint64_t number : tables.waits.ListJob(job)) {
    Waiter& waiter = *tables.waits.Find(number);
    // The store ends what is committing.
    if (waiter.has_deadline() && !waiter.committing()) RefuseWaiter(tables, waiter, refusal, 0);
  }
}

}  // namespace tier::tiering
