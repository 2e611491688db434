// See stalled.h.
#include "daemon/tiering/memory/stalled.h"

#include <algorithm>
#include <tuple>

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

// Of which users requests wait for no claim: of all, of one, or of none.
class ClaimsFirst {
 public:
  void Add(uint32_t uid) {
    several_ = several_ || (any_ && uid != uid_);
    any_ = true;
    uid_ = uid;
  }
  bool KeepWaiting(const JobState& job) const { return several_ || (any_ && uid_ != job.record.uid); }

 private:
  bool any_ = false;
  bool several_ = false;
  uint32_t uid_ = 0;
};

// The time of a user who is owed a window goes on across gaps in which nothing was asked, so that no gap makes a new
// beginning. While a request is served nothing is sought for claims: nothing new is found out then.
void NoteOwed(Tables& tables, EntitlementIndex claim) {
  const base::TimePoint now = tables.turn.now();
  OwedTime& owed = tables.ledger.OwedTimeOf(claim);
  if (now - owed.seen > kServingMax) owed = {.since = now, .came_bytes = tables.ledger.UserOf(claim).came_bytes};
  owed.seen = now;
  if (tables.serving.any()) return;
  const uint64_t came_bytes = tables.ledger.UserOf(claim).came_bytes;
  if (owed.came_bytes != came_bytes) {
    owed.since = now;
    owed.in_vain = false;
    owed.came_bytes = came_bytes;
  }
  const bool comes =
      tables.ledger.BytesToAskBack() != 0 || tables.ledger.coming_bytes() != 0 || tables.hand_over.emptying();
  const base::TimePoint since = std::max(owed.since, tables.serving.ended_at());
  if (now - since >= (comes ? kHandOverPatience : kOwedPatience)) owed.in_vain = true;
}

// Users with a job that is owed memory within its promise, to within a slot window, as promises are kept; and windows
// come for it. (One that is stalled itself shares in time.)
ClaimsFirst FindClaimsFirst(Tables& tables) {
  ClaimsFirst first;
  for (const EntitlementIndex claim : tables.ledger.claims()) {
    const JobState* const job = tables.jobs.Find(tables.ledger.IdOf(claim));
    if (job == nullptr || !tables.ledger.LacksWindow(claim) || StalledBy(tables, *job).waiter != 0) continue;
    NoteOwed(tables, claim);
    const OwedTime& owed = tables.ledger.UserOf(claim).owed;
    if (!owed.in_vain && !owed.from_own) first.Add(job->record.uid);
  }
  return first;
}

void End(Tables& tables) {
  tables.ledger.EndServing();
  tables.serving.End(tables.turn.now());
  tables.waits.OnRoomEverywhere();  // They may grow again.
}

// The users have their turns one after the other, however many jobs and requests each has; within a user the request
// that came first after the one that was served last, round and round. One that has to wait for claims keeps no other
// waiting.
JobState* Next(const Tables& tables, const ClaimsFirst& claims) {
  JobState* next = nullptr;
  std::tuple<uint64_t, bool, uint64_t> order_of_next;
  for (JobState* job : tables.waits.short_jobs()) {
    const uint64_t number = ShortIn(tables, *job);
    if (number == 0 || claims.KeepWaiting(*job) || !ExceedsPromise(tables, *job)) continue;
    const EntitledUser& user = tables.ledger.UserOf(job->entitlement);
    const std::tuple order(user.served_in, number <= user.served_waiter, number);
    if (next != nullptr && order_of_next <= order) continue;
    next = job;
    order_of_next = order;
  }
  return next;
}

}  // namespace

StalledRequest StalledBy(const Tables& tables, const JobState& job) {
  const uint64_t number = ShortIn(tables, job);
  if (number == 0) return {};
  // Once found it stays so, unless its promise rises: what is taken from the job for others looks like room that comes
  // for itself.
  const StalledRequest& known = tables.ledger.StalledBy(job.entitlement);
  if (known.waiter == number && tables.ledger.IsStalled(job.entitlement)) return known;
  if (!ExceedsPromise(tables, job)) return {};
  return {.waiter = number, .bytes = tables.ledger.HeldBy(job.entitlement) + MissingBytes(tables, job)};
}

void ServeStalled(Tables& tables) {
  Serving& serving = tables.serving;
  if (serving.any()) {
    JobState* job = tables.jobs.Find(serving.job());
    const bool stalled = job != nullptr && ShortIn(tables, *job) == serving.waiter();
    const bool over = !stalled || tables.turn.now() >= serving.until();
    if (over || tables.ledger.guarantee_owed() || FindClaimsFirst(tables).KeepWaiting(*job)) return End(tables);
    tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
    return;
  }
  if (!tables.ledger.anybody_owed()) serving.NoteNobodyOwed(tables.turn.now());
  if (tables.waits.short_jobs().empty() || tables.jobs.open().size() <= 1) return;
  if (tables.ledger.guarantee_owed()) return;
  const ClaimsFirst claims = FindClaimsFirst(tables);
  // Jobs that are owed memory within their promise come first. But where windows do not divide evenly, a job may be
  // owed less than one window for good, and no other job has a whole one to give.
  if (tables.ledger.anybody_owed() && tables.turn.now() - serving.owed_since() < kOwedPatience) return;
  JobState* job = Next(tables, claims);
  if (job == nullptr) return;
  serving.Begin(job->id, tables.waits.shortage_waiter(*job), tables.turn.now() + kServingMax);
  tables.ledger.NoteServed(job->entitlement, serving.waiter());
  tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
  tables.waits.OnRoom(*job);
}

}  // namespace tier::tiering
