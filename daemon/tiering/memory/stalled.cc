// See stalled.h.
#include "daemon/tiering/memory/stalled.h"

#include <algorithm>

#include "daemon/tiering/memory/window_ownership.h"

namespace tier::tiering {
namespace {

uint64_t MissingBytes(const JobState& job) {
  const uint64_t free_pages = std::min(job.pool.free_pages(), job.shortage_pages);
  // Free pages may be too scattered for what is asked: then one window more serves it.
  return std::max<uint64_t>((job.shortage_pages - free_pages) * kPageSize, kPageSize);
}

// The first request of the job that is short of room: its number, which rises in the order of arrival. 0: there is
// none.
uint64_t ShortIn(const JobState& job) { return job.closing || job.shortage_pages == 0 ? 0 : job.shortage_waiter; }

// The job could not serve the request with all that it is promised.
bool ExceedsPromise(const Core& core, const JobState& job) {
  return core.ledger.HeldBy(job.entitlement) + MissingBytes(job) > core.ledger.PromisedTo(job.entitlement);
}

void End(Core& core) {
  core.ledger.EndServing();
  core.serving.job = JobId{};
  core.serving.owed_since = core.now;
  core.waits.OnRoomEverywhere();  // They may grow again.
}

// The request that came first after the one that was served last; round and round.
JobState* Next(Core& core) {
  JobState* next = nullptr;
  JobState* first = nullptr;
  for (JobState* job : core.short_jobs) {
    const uint64_t number = ShortIn(*job);
    if (number == 0 || !ExceedsPromise(core, *job)) continue;
    if (first == nullptr || number < first->shortage_waiter) first = job;
    if (number <= core.serving.waiter) continue;
    if (next == nullptr || number < next->shortage_waiter) next = job;
  }
  return next != nullptr ? next : first;
}

}  // namespace

void ServeStalled(Core& core) {
  Serving& serving = core.serving;
  if (serving.job != JobId{}) {
    JobState* job = core.jobs.Find(serving.job);
    const bool stalled = job != nullptr && ShortIn(*job) == serving.waiter;
    if (!stalled || core.now >= serving.until) return End(core);
    core.ledger.Serve(job->entitlement, MissingBytes(*job));
    return;
  }
  if (!core.ledger.anybody_owed()) serving.owed_since = core.now;
  if (core.short_jobs.empty() || core.jobs.open().size() <= 1) return;
  // Those who are owed memory within their promise come first. But where windows do not divide evenly a job may be owed
  // less than one for good, and nobody has a whole one to give.
  if (core.ledger.anybody_owed() && core.now - serving.owed_since < kOwedPatience) return;
  JobState* job = Next(core);
  if (job == nullptr) return;
  serving.job = job->id;
  serving.waiter = job->shortage_waiter;
  serving.until = core.now + kServingMax;
  core.ledger.Serve(job->entitlement, MissingBytes(*job));
  core.waits.OnRoom(*job);
}

}  // namespace tier::tiering
