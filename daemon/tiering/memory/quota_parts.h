// Parts of a user's quota of RAM, as its jobs come and go (tables/ledger.h). Engine thread only.
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

}  // namespace tier::tiering
