// See lending.h.
#include "daemon/tiering/memory/lending.h"

#include <algorithm>

namespace tier::tiering {
namespace {

bool IsIdle(Tables& tables, const JobState& job) {
  if (tables.options.idle_after == base::Duration::zero() || job.replay.under_way()) return false;
  if (tables.ledger.LeasedBy(job.entitlement) != 0 || tables.waits.anybody_waits_for_room(job)) return false;
  if (job.sessions.empty()) return true;
  if (tables.turn.now() < job.sessions.requested_at() + tables.options.idle_after) return false;
  tables.work.Charge(static_cast<uint32_t>(job.sessions.size()));
  return std::ranges::all_of(job.sessions,
                             [](const SessionState* session) { return session->requests.outstanding() == 0; });
}

}  // namespace

void FindIdleJobs(Tables& tables) {
  for (const JobState* job : tables.jobs.open()) {
    tables.work.Charge(1);
    tables.ledger.SetIdle(job->entitlement, IsIdle(tables, *job));
  }
}

}  // namespace tier::tiering
