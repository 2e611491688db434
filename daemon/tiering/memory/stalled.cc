// See stalled.h.
#include "daemon/tiering/memory/stalled.h"

#include <algorithm>
#include <tuple>

#include "daemon/tiering/memory/quota_parts.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/memory/window_ownership.h"

namespace tier::tiering {
namespace {

uint64_t MissingBytes(const Tables& tables, const JobState& job) {
  const uint64_t free_pages = std::min(job.pool.free_pages(), tables.waits.shortage_pages(job));
  // Free pages may be too scattered for what is asked: then one window more serves it.
  return std::max<uint64_t>((tables.waits.shortage_pages(job) - free_pages) * kPageSize, kPageSize);
}

// The first request of the job that is short of room: its number, which rises in the order of arrival. 0: there is
// none.
uint64_t ShortIn(const Tables& tables, const JobState& job) {
  return job.record.closing || tables.waits.shortage_pages(job) == 0 ? 0 : tables.waits.shortage_waiter(job);
}

// The job cannot serve the request with all that it is promised, and makes no room of its own: one that borrowed memory
// and waits for its writes is beyond its promise too.
bool ExceedsPromise(const Tables& tables, const JobState& job) {
  if (OwnRoomComes(job)) return false;
  return tables.ledger.HeldBy(job.entitlement) + MissingBytes(tables, job) > tables.ledger.PromisedTo(job.entitlement);
}

void End(Tables& tables) {
  tables.ledger.EndServing();
  tables.serving.End(tables.turn.now());
  tables.waits.OnRoomEverywhere();  // They may grow again.
}

// Of the request that is served. Where leases of others must end first, those get no new ones meanwhile (requests/
// reserve), and no windows are taken for it.
enum class Phase : uint8_t { kTakesWindows, kLacksLeases, kRetries, kOver };

Phase PhaseOfServed(const Tables& tables) {
  const Serving& serving = tables.serving;
  const JobState* job = tables.jobs.Find(serving.job());
  if (job == nullptr || tables.turn.now() >= serving.until()) return Phase::kOver;
  if (ShortIn(tables, *job) == serving.waiter()) return Phase::kTakesWindows;
  if (job->record.closing || tables.waits.Find(serving.waiter()) == nullptr) return Phase::kOver;
  using Lack = WaitTable::Lack;
  const Lack lack = tables.waits.StandingOf(serving.waiter()).lack;
  return lack == Lack::kWork ? Phase::kRetries : lack == Lack::kLeases ? Phase::kLacksLeases : Phase::kOver;
}

// The request whose turn it is: users take turns, jobs of one user do, and requests of one job come in the order of
// arrival.
JobState* Next(Tables& tables) {
  const auto turn = [&](const JobState& job) {
    return std::tuple(tables.serving.LastOf(job.record.uid), job.last_service, ShortIn(tables, job));
  };
  JobState* next = nullptr;
  for (JobState* job : tables.waits.short_jobs()) {
    if (ShortIn(tables, *job) == 0 || !ExceedsPromise(tables, *job)) continue;
    if (QuotaTaken(tables, *job)) continue;  // It could not take what others gave.
    if (next == nullptr || turn(*job) < turn(*next)) next = job;
  }
  return next;
}

// Finds jobs that work within their promises and are owed memory. What the last request that was served got beyond the
// promise of its job may be missed by one of another user still after it. Less than a window is nothing that could go.
void NoteOwed(Tables& tables) {
  Serving& serving = tables.serving;
  const base::TimePoint now = tables.turn.now();
  const JobState* served = tables.jobs.Find(serving.last_job());
  uint64_t beyond = 0;
  if (served != nullptr) {
    const uint64_t held = tables.ledger.HeldBy(served->entitlement);
    beyond = std::min(tables.ledger.Surplus(served->entitlement), held - std::min(held, serving.held_before()));
    if (beyond < tables.windows.grain()) beyond = 0;
  }
  bool owed = false;
  bool missed = false;
  for (const EntitlementIndex claim : tables.ledger.claims()) {
    const JobState* job = tables.jobs.Find(tables.ledger.IdOf(claim));
    if (job == nullptr || ExceedsPromise(tables, *job)) continue;
    owed = true;
    missed = missed || (beyond != 0 && job->record.uid != served->record.uid);
  }
  if (serving.NoteWithinOwed(owed, now)) tables.waits.OnRoomEverywhere();
  if (missed) {
    serving.NoteMissed(beyond, now);
  } else {
    serving.NoteNotMissed();
  }
}

}  // namespace

void ServeStalled(Tables& tables) {
  Serving& serving = tables.serving;
  if (tables.ledger.anybody_owed() || serving.notes_owed()) NoteOwed(tables);
  if (serving.any()) {
    const Phase phase = PhaseOfServed(tables);
    if (phase == Phase::kOver || tables.ledger.guarantee_owed()) return End(tables);
    if (phase == Phase::kTakesWindows) {
      JobState* job = tables.jobs.Find(serving.job());
      tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
    } else if (phase == Phase::kLacksLeases && tables.ledger.serving()) {
      tables.ledger.EndServing();
      tables.waits.OnRoomEverywhere();
    }
    return;
  }
  if (!tables.ledger.anybody_owed()) serving.NoteNobodyOwed(tables.turn.now());
  if (tables.waits.short_jobs().empty() || tables.jobs.open().size() <= 1) return;
  if (tables.ledger.guarantee_owed() || serving.pauses(tables.turn.now())) return;
  // Jobs that are owed memory within their promise come first. But where windows do not divide evenly, a job may be
  // owed less than one window for good, and no other job has a whole one to give.
  if (tables.ledger.anybody_owed() && tables.turn.now() - serving.owed_since() < kOwedPatience) return;
  JobState* job = Next(tables);
  if (job == nullptr) return;
  const uint64_t waiter = tables.waits.shortage_waiter(*job);
  job->last_service = serving.Begin({.job = job->id,
                                     .uid = job->record.uid,
                                     .waiter = waiter,
                                     .held_bytes = tables.ledger.HeldBy(job->entitlement),
                                     .begin = tables.turn.now(),
                                     .until = tables.turn.now() + kServingMax});
  tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
  tables.waits.OnRoom(*job);
}

std::optional<base::TimePoint> NextServing(const Tables& tables) {
  const Serving& serving = tables.serving;
  const base::TimePoint now = tables.turn.now();
  std::optional<base::TimePoint> next;
  const auto consider = [&](base::TimePoint at) { next = std::min(next.value_or(at), at); };
  if (serving.any()) consider(serving.until());
  if (serving.HoldsBack(now)) consider(serving.held_back_until());
  if (serving.pauses(now) && !tables.waits.short_jobs().empty()) consider(serving.pause_until());
  return next;
}

}  // namespace tier::tiering
