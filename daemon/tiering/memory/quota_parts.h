// Parts of a user's quota of RAM, as its jobs come and go (tables/ledger.h). Engine thread only.
//
// A job may hold more than its part, from before its part became smaller. What is not leased is evicted down to the
// part at once. Its windows stay until another job of the user waits for them: then hand-over takes those that the job
// has beyond its part, with nothing taken from other users, and forced return ends sessions whose leases keep them
// (jobs/forced_return.h).
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// What each job of the user may hold has changed: they evict what is beyond it, and requests that wait for room are
// looked at again.
void OnOtherParts(Tables& tables, uint32_t uid);
// This job came, went, or has other terms. Without a quota of RAM of its user nothing happens.
inline void OnQuotaDivided(Tables& tables, const JobState& job) {
  if (tables.ledger.UserOf(job.entitlement).quota.ram.any()) OnOtherParts(tables, job.record.uid);
}

// The job could hold more by its own part, and all windows of its user's jobs take up the quota.
bool QuotaTaken(const Tables& tables, const JobState& job);
// Claims of jobs with requests that lack room stand. Once a turn, when these jobs are listed.
void RenewClaims(Tables& tables);
// What jobs hold beyond their parts is to go, where another job of the user waits for it. Work: one look at each job.
void AskWithinUsers(Tables& tables);

}  // namespace tier::tiering
