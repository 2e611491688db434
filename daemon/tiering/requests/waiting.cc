// See waiting.h.
#include "daemon/tiering/requests/waiting.h"

#include <algorithm>
#include <optional>

#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/enumeration.h"
#include "daemon/tiering/requests/flush.h"
#include "daemon/tiering/requests/holds.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/scans.h"

namespace tier::tiering {
namespace {

using proto::Op;
using Iterator = WaiterList::iterator;

constexpr uint32_t kRetryRoundsMax = 8;

void CountWait(Core& core, const Waiter& waiter) {
  const base::Duration waited = waiter.timed ? core.now - waiter.arrived : base::Duration{0};
  const auto nanoseconds = static_cast<uint64_t>(std::max<int64_t>(waited.count(), 0));
  const double seconds = static_cast<double>(nanoseconds) * 1e-9;
  const auto bucket = std::lower_bound(kWaitBucketsSeconds.begin(), kWaitBucketsSeconds.end(), seconds);
  ++core.wait_histogram[static_cast<size_t>(bucket - kWaitBucketsSeconds.begin())];
  core.wait_sum_ns += nanoseconds;
  waiter.job->counters.stall_ns += nanoseconds;
}

Iterator Remove(Core& core, Iterator waiter) {
  UnpinAll(core, *waiter);
  DropClaims(core, *waiter);
  if (waiter->timed) core.deadlines.erase({waiter->deadline, waiter->number});
  core.waiter_by_number.erase(waiter->number);
  SessionState& session = core.AskerOf(*waiter);
  TIER_CHECK(session.waiter_count != 0, "waiter {}", waiter->number);
  --session.waiter_count;
  EndEnumeration(session, *waiter);
  JobState& job = *waiter->job;
  job.retry_waiters = true;
  core.made_progress = true;
  if (job.next_retry == waiter) ++job.next_retry;
  return job.waiters.erase(waiter);
}

void CountRanges(JobState& job, const Waiter& waiter) {
  if (waiter.op != Op::kAcquire) return;
  (waiter.missed ? job.counters.acquire_misses : job.counters.acquire_hits) += waiter.items.size();
}

void GrantWaiter(Core& core, Iterator waiter) {
  CountRanges(*waiter->job, *waiter);
  CountWait(core, *waiter);
  const Ask ask = AskOf(core, *waiter);
  if (ask.op == Op::kFree) {
    uint64_t freed = 0;
    for (const WaitItem& item : ask.items) {
      if (!core.Alive(item.tensor)) continue;  // Named twice.
      Detach(core, item.tensor.slot);
      ++freed;
    }
    AnswerValue(core, *ask.session, ask.sequence, ask.op, freed);
  } else {
    TakePlace(core, ask);
    Grant(core, ask);
  }
}

// A creation that comes to nothing leaves nothing behind.
void GiveUpCreation(Core& core, const Waiter& waiter) {
  if (waiter.op != Op::kCreate) return;
  for (const WaitItem& item : waiter.items) {
    if (core.Alive(item.tensor)) Detach(core, item.tensor.slot);
  }
}

void FinishWaiter(Core& core, Iterator waiter, uint64_t value) {
  AnswerValue(core, core.AskerOf(*waiter), waiter->sequence, waiter->op, value);
  Remove(core, waiter);
}

void RefuseWaiter(Core& core, Iterator waiter, Refusal refusal, uint64_t item) {
  SessionState& session = core.AskerOf(*waiter);
  const Answered to{waiter->sequence, waiter->op, item};
  CountWait(core, *waiter);
  // It is removed next. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const Waiter refused = *waiter;
  Remove(core, waiter);
  GiveUpCreation(core, refused);
  AnswerRefusal(core, session, to, std::move(refusal));
}

// As the unit that worked on it reports. True: it is gone.
bool End(Core& core, Iterator waiter, Outcome outcome) {
  switch (outcome.progress) {
    case Progress::kFinished: FinishWaiter(core, waiter, outcome.value); return true;
    case Progress::kRefused: RefuseWaiter(core, waiter, std::move(outcome.refusal), outcome.item); return true;
    default: return false;
  }
}

// Looks that one look at the item takes. Most requests go over pieces with a cursor, as far as the turn's looks reach.
uint32_t WorkCostOf(Op op, const WaitItem& item) {
  if (op == Op::kFree) return 1;
  return op == Op::kCreate || op == Op::kAcquire ? item.piece_count : 0;
}

base::Duration TimeoutOf(const Core& core, const Waiter& waiter) {
  if (waiter.timeout_ms == proto::kTimeoutDefault) return core.options.deadline_default;
  return std::chrono::milliseconds(waiter.timeout_ms);
}

// One pass over the waiters of a job, first come first.
struct Pass {
  bool room_blocked = false;  // An earlier waiter did not get the room that it needs.
};

// Whether a waiter may take room before those that came earlier and did not get theirs. A session that holds leases
// may: it may have to take more before it can end them, and others may wait for just that. Not past a waiter that has
// waited for half of its time: it would never be served.
bool MayTakeRoom(Core& core, const Waiter& waiter, const Pass& pass) {
  if (!pass.room_blocked) return true;
  return core.now < waiter.job->room_closes_at && core.AskerOf(waiter).lease_count != 0;
}

void BlockRoom(Core& core, const Waiter& waiter, Pass* pass) {
  TIER_CHECK(!waiter.pinned, "waiter {} is short of room and holds some", waiter.number);
  pass->room_blocked = true;
  const base::TimePoint arrived = waiter.timed ? waiter.arrived : core.now;
  base::TimePoint& closes_at = waiter.job->room_closes_at;
  closes_at = std::min(closes_at, arrived + TimeoutOf(core, waiter) / 2);
}

enum class Next : uint8_t { kWait, kDone };

void ReleaseHold(Core& core, Waiter& waiter, const ConflictCheck& found) {
  UnpinAll(core, waiter);
  waiter.starved = false;
  waiter.cursor_item = found.item;
  waiter.cursor_piece = found.piece;
}

Next OnConflict(Core& core, Iterator waiter, const Ask& ask, const ConflictCheck& found) {
  ReleaseHold(core, *waiter, found);
  if ((ask.flags & proto::kFlagNoWait) != 0) {
    RefuseWaiter(core, waiter, BlockedRefusal(core, ask, found), found.item);
    return Next::kDone;
  }
  const bool own_counts = (ask.flags & proto::kFlagNoWaitOwn) != 0;
  if (own_counts) core.work_left -= std::min(core.work_left, ask.session->lease_count);  // It goes over all of them.
  if (own_counts && OwnLeasesBlock(core, *ask.session, found, ask)) {
    const uint64_t tensor = core.tensors[ask.items[found.item].tensor.slot].id;
    RefuseWaiter(core, waiter, OwnLeasesRefusal(core, *ask.session, tensor), found.item);
    return Next::kDone;
  }
  if (ask.exclusive() && ask.op == Op::kAcquire) ClaimAll(core, *waiter);
  waiter->blocked = true;
  return Next::kWait;
}

// It is first in line for room and has not got all it needs.
Next OnShortage(Core& core, Iterator waiter, const Ask& ask) {
  JobState& job = *waiter->job;
  waiter->starved = true;
  if (job.shortage_pages == 0) {
    job.shortage_pages = waiter->needed_pages;
    job.shortage_waiter = waiter->number;
  }
  Maintain(core, job);
  const bool failing = job.write_backoff >= kWriteFailuresBeforeRefusal &&
                       job.write_failure_count > waiter->write_failures && job.windows_making == 0 &&
                       job.reading_pages == 0 && job.writing_pages == 0;
  if (failing) {
    RefuseWaiter(core, waiter, WriteFailureRefusal(core, job, waiter->requested_bytes), 0);
    return Next::kDone;
  }
  if ((ask.flags & proto::kFlagNoWaitOwn) != 0 && OwnLeasesHoldRoom(core, *ask.session)) {
    RefuseWaiter(core, waiter, OwnLeasesRefusal(core, *ask.session, 0), 0);
    return Next::kDone;
  }
  return Next::kWait;
}

Next TryReserve(Core& core, Iterator waiter, const Ask& ask, Pass& pass) {
  waiter->missed = true;
  DropClaims(core, *waiter);
  const uint64_t missing = NeedOf(core, ask).pages();
  waiter->needed_pages = missing;
  if (missing != 0 && !MayTakeRoom(core, *waiter, pass)) {
    UnpinAll(core, *waiter);
    waiter->starved = true;
    return Next::kWait;
  }
  if (!PinAll(core, *waiter)) return Next::kWait;
  const bool complete = (AwaitsPlace(core, ask) && ReserveInPlace(core, ask)) || Reserve(core, ask);
  if (!complete) {
    waiter->needed_pages = NeedOf(core, ask).pages();
    waiter->needed_pages -= std::min(waiter->needed_pages - 1, VacatedBy(core, ask).pages);
    UnpinAll(core, *waiter);
    BlockRoom(core, *waiter, &pass);
    return OnShortage(core, waiter, ask);
  }
  waiter->starved = false;
  if (CheckConflicts(core, ask).verdict != Verdict::kReady) return Next::kWait;
  GrantWaiter(core, waiter);
  return Next::kDone;
}

// Its leases would reach into what others are guaranteed. What it gathered goes back, until some of them end.
Next OnLeaseLimit(Core& core, Iterator waiter, const Ask& ask, Pass& pass) {
  UnpinAll(core, *waiter);
  DropClaims(core, *waiter);
  waiter->missed = true;
  waiter->starved = true;
  BlockRoom(core, *waiter, &pass);
  if ((ask.flags & proto::kFlagNoWaitOwn) == 0 || !OnlyOwnLeases(*ask.session)) return Next::kWait;
  RefuseWaiter(core, waiter, OwnLeasesRefusal(core, *ask.session, 0), 0);
  return Next::kDone;
}

Next TryLease(Core& core, Iterator waiter, Pass& pass) {
  const Ask ask = AskOf(core, *waiter);
  if (waiter->blocked) {
    const ConflictCheck there = CheckConflictAt(core, ask, waiter->cursor_item, waiter->cursor_piece);
    if (there.verdict == Verdict::kBlocked) return Next::kWait;
  }
  waiter->blocked = false;
  if (AwaitsPlace(core, ask)) {
    if (std::optional<Refusal> refusal = PlaceRefusal(core, ask)) {
      RefuseWaiter(core, waiter, *std::move(refusal), 0);
      return Next::kDone;
    }
  }
  const ConflictCheck found = CheckConflicts(core, ask);
  switch (found.verdict) {
    case Verdict::kRefused: RefuseWaiter(core, waiter, RefusalOf(core, ask, found), found.item); return Next::kDone;
    case Verdict::kBlocked: return OnConflict(core, waiter, ask, found);
    case Verdict::kReady:
    case Verdict::kNeedsRoom: break;
  }
  const bool fits = LeasesFit(core, ask);
  if (fits && found.verdict == Verdict::kReady) {
    GrantWaiter(core, waiter);
    return Next::kDone;
  }
  const Next next = fits ? TryReserve(core, waiter, ask, pass) : OnLeaseLimit(core, waiter, ask, pass);
  if (next == Next::kWait && (ask.flags & proto::kFlagNoWait) != 0) {
    Refusal refusal = NoMemoryRefusal(core, *waiter->job, waiter->requested_bytes);
    refusal.code = Code::kTimeout;
    refusal.detail = "not in RAM now, and the request must not wait; " + refusal.detail;
    RefuseWaiter(core, waiter, std::move(refusal), found.item);
    return Next::kDone;
  }
  return next;
}

// REQUIRES after kDone: the waiter is still in the list, answered, unless it was refused (then it is gone).
bool Advance(Core& core, Iterator waiter, Pass& pass) {
  if (waiter->op == Op::kFlush || waiter->op == Op::kPersist) return End(core, waiter, AdvanceFlush(core, *waiter));
  if (IsScan(waiter->op)) {
    if (!AdvanceScan(core, *waiter)) return false;
    Remove(core, waiter);
    return true;
  }
  const uint64_t number = waiter->number;
  if (TryLease(core, waiter, pass) == Next::kWait) return false;
  if (core.waiter_by_number.contains(number)) Remove(core, waiter);
  return true;
}

}  // namespace

void Enqueue(Core& core, const Ask& ask, const Enqueued& request) {
  JobState& job = *ask.session->job;
  if (core.waiter_by_number.size() >= kWaitersMax) {
    Waiter refused{.job = &job, .op = ask.op, .items = {ask.items.begin(), ask.items.end()}};
    GiveUpCreation(core, refused);
    AnswerRefusal(core, *ask.session, {ask.sequence, ask.op, 0},
                  {Code::kTimeout,
                   "too many requests wait in this daemon; try again later",
                   {.requested = 1, .limit = kWaitersMax}});
    return;
  }
  const Iterator waiter = job.waiters.insert(job.waiters.end(), Waiter{});
  waiter->number = core.next_waiter++;
  waiter->session = ask.session->id;
  waiter->session_slot = ask.session->slot;
  waiter->job = &job;
  waiter->sequence = ask.sequence;
  waiter->op = ask.op;
  waiter->flags = ask.flags;
  waiter->timeout_ms = request.timeout_ms;
  waiter->items.assign(ask.items.begin(), ask.items.end());
  waiter->requested_bytes = request.requested_bytes;
  waiter->write_failures = job.write_failure_count;
  waiter->scan = request.scan;
  if (request.enumerating) waiter->enumeration = Enumeration::kOwn;
  for (const WaitItem& item : ask.items) waiter->work_cost += WorkCostOf(ask.op, item);
  waiter->work_cost += PlacePieces(core, ask);
  core.waiter_by_number.emplace(waiter->number, waiter);
  core.untimed_waiters.push_back(waiter->number);
  ++ask.session->waiter_count;
  if (core.work_left == 0) {  // The next turn tries it.
    job.retry_waiters = true;
    core.made_progress = true;
    return;
  }
  core.work_left -= std::min(core.work_left, waiter->work_cost);
  Pass pass{.room_blocked = job.shortage_pages != 0};
  Advance(core, waiter, pass);
}

void RetryWaiters(Core& core, JobState& job) {
  // A grant or refusal may help those before it. What more rounds or looks would bring, the next turns bring.
  for (uint32_t round = 0; round < kRetryRoundsMax; ++round) {
    if (!job.retrying) {
      if (!job.retry_waiters) return;
      job.retry_waiters = false;
      job.retrying = true;
      job.shortage_pages = 0;
      job.room_closes_at = kNever;
      job.next_retry = job.waiters.begin();
    }
    Pass pass{.room_blocked = job.shortage_pages != 0};
    while (job.next_retry != job.waiters.end()) {
      if (core.work_left == 0) {
        core.made_progress = true;
        return;
      }
      const Iterator waiter = job.next_retry++;
      core.work_left -= std::min(core.work_left, waiter->blocked ? 1 : waiter->work_cost);
      Advance(core, waiter, pass);
    }
    job.retrying = false;
  }
}

void TimeNewWaiters(Core& core) {
  for (const uint64_t number : core.untimed_waiters) {
    const auto found = core.waiter_by_number.find(number);
    if (found == core.waiter_by_number.end()) continue;
    Waiter& waiter = *found->second;
    waiter.arrived = core.now;
    waiter.deadline = core.now + TimeoutOf(core, waiter);
    waiter.timed = true;
    core.deadlines.emplace(waiter.deadline, number);
  }
  core.untimed_waiters.clear();
}

void ExpireWaiters(Core& core) {
  while (!core.deadlines.empty() && core.deadlines.begin()->first <= core.now) {
    const Iterator waiter = core.waiter_by_number.at(core.deadlines.begin()->second);
    if (waiter->cookie != 0) {  // Its manifest may be committed already: what the store answers is the truth.
      core.deadlines.erase(core.deadlines.begin());
      continue;
    }
    if (core.work_left == 0) {  // The next turn is due at once: the deadline is past.
      core.made_progress = true;
      return;
    }
    // The refusal names who holds what.
    const uint64_t cost = waiter->job->sessions.size() + (waiter->blocked ? 1 : waiter->work_cost);
    core.work_left -= static_cast<uint32_t>(std::min<uint64_t>(core.work_left, cost));
    RefuseWaiter(core, waiter, DeadlineRefusal(core, *waiter), waiter->cursor_item);
  }
}

void RefuseFailedReads(Core& core) {
  for (const FailedRead& failed : std::exchange(core.failed_reads, {})) {
    if (!core.Alive(failed.tensor)) continue;
    JobState& job = *core.tensors[failed.tensor.slot].job;
    for (Iterator waiter = job.waiters.begin(); waiter != job.waiters.end();) {
      const Iterator next = std::next(waiter);
      const auto names = [&](const WaitItem& item) {
        return item.tensor == failed.tensor && failed.piece - item.first_piece < item.piece_count;
      };
      const auto item = std::find_if(waiter->items.begin(), waiter->items.end(), names);
      if (waiter->pinned && item != waiter->items.end()) {
        RefuseWaiter(core, waiter, failed.refusal, static_cast<uint64_t>(item - waiter->items.begin()));
      }
      waiter = next;
    }
  }
}

void AnswerCommitted(Core& core) {
  for (CommittedManifest& committed : std::exchange(core.committed, {})) {
    const auto found = core.waiter_by_number.find(committed.waiter);
    if (found != core.waiter_by_number.end()) End(core, found->second, std::move(committed.outcome));
  }
}

void FinishInternal(Core& core, JobState& job) {
  while (!job.waiters.empty() && job.waiters.front().session == kInternalSession) {
    FinishWaiter(core, job.waiters.begin(), 0);
  }
}

void DropWaitersOf(Core& core, SessionState& session) {
  JobState& job = *session.job;
  for (Iterator waiter = job.waiters.begin(); session.waiter_count != 0 && waiter != job.waiters.end();) {
    const Iterator next = std::next(waiter);
    if (waiter->session_slot == session.slot) {
      if (AwaitsPlace(core, AskOf(core, *waiter))) GiveUpCreation(core, *waiter);  // The rest goes by its name.
      Remove(core, waiter);
    }
    waiter = next;
  }
  TIER_CHECK(session.waiter_count == 0, "{} waiters left", session.waiter_count);
}

void RefuseAll(Core& core, JobState& job, const Refusal& refusal) {
  for (Iterator waiter = job.waiters.begin(); waiter != job.waiters.end();) {
    const Iterator next = std::next(waiter);
    if (waiter->cookie == 0) RefuseWaiter(core, waiter, refusal, 0);
    waiter = next;
  }
}

}  // namespace tier::tiering
