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

// A job of another user is owed memory within its promise that it could use. (One that is stalled itself shares in
// time.) To within a slot window, as promises are kept.
bool OwedToOtherUsers(const Tables& tables, const JobState& served) {
  return std::ranges::any_of(tables.ledger.claims(), [&](EntitlementIndex claim) {
    const JobState* const job = tables.jobs.Find(tables.ledger.IdOf(claim));
    if (job == nullptr || job->record.uid == served.record.uid) return false;
    return tables.ledger.LacksWindow(claim) && StalledBy(tables, *job) == 0;
  });
}

void End(Tables& tables) {
  tables.ledger.EndServing();
  tables.serving.End(tables.turn.now());
  tables.waits.OnRoomEverywhere();  // They may grow again.
}

// The users have their turns one after the other, however many jobs and requests each has; within a user the request
// that came first after the one that was served last, round and round.
JobState* Next(const Tables& tables) {
  JobState* next = nullptr;
  std::tuple<uint64_t, bool, uint64_t> order_of_next;
  for (JobState* job : tables.waits.short_jobs()) {
    const uint64_t number = ShortIn(tables, *job);
    if (number == 0 || !ExceedsPromise(tables, *job)) continue;
    const EntitledUser& user = tables.ledger.UserOf(job->entitlement);
    const std::tuple order(user.served_in, number <= user.served_waiter, number);
    if (next != nullptr && order_of_next <= order) continue;
    next = job;
    order_of_next = order;
  }
  return next;
}

}  // namespace

uint64_t StalledBy(const Tables& tables, const JobState& job) {
  const uint64_t number = ShortIn(tables, job);
  // Once found it stays so: what is taken from the job for others looks like room that comes for itself.
  const bool known = number == tables.ledger.StalledBy(job.entitlement);
  return number != 0 && (known || ExceedsPromise(tables, job)) ? number : 0;
}

void ServeStalled(Tables& tables) {
  Serving& serving = tables.serving;
  if (serving.any()) {
    JobState* job = tables.jobs.Find(serving.job());
    const bool stalled = job != nullptr && ShortIn(tables, *job) == serving.waiter();
    const bool over = !stalled || tables.turn.now() >= serving.until();
    if (over || tables.ledger.guarantee_owed() || OwedToOtherUsers(tables, *job)) return End(tables);
    tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
    return;
  }
  if (!tables.ledger.anybody_owed()) serving.NoteNobodyOwed(tables.turn.now());
  if (tables.waits.short_jobs().empty() || tables.jobs.open().size() <= 1) return;
  if (tables.ledger.guarantee_owed()) return;
  // Jobs that are owed memory within their promise come first. But where windows do not divide evenly, a job may be
  // owed less than one window for good, and no other job has a whole one to give.
  if (tables.ledger.anybody_owed() && tables.turn.now() - serving.owed_since() < kOwedPatience) return;
  JobState* job = Next(tables);
  if (job == nullptr || OwedToOtherUsers(tables, *job)) return;
  serving.Begin(job->id, tables.waits.shortage_waiter(*job), tables.turn.now() + kServingMax);
  tables.ledger.NoteServed(job->entitlement, serving.waiter());
  tables.ledger.Serve(job->entitlement, MissingBytes(tables, *job));
  tables.waits.OnRoom(*job);
}

}  // namespace tier::tiering
