// See quota_parts.h.
#include "daemon/tiering/memory/quota_parts.h"

#include <algorithm>

namespace tier::tiering {

void OnOtherParts(Tables& tables, uint32_t uid) {
  for (JobState* job : tables.jobs.open()) {
    if (job->record.uid != uid) continue;
    tables.jobs.NeedMaintenance(*job);
    tables.waits.OnRoom(*job);
  }
}

bool QuotaTaken(const Tables& tables, const JobState& job) {
  return tables.ledger.QuotaTaken(job.entitlement, tables.windows.sizes(WindowKind::kBlock).least);
}

void RenewClaims(Tables& tables) {
  bool waits = false;
  for (const JobState* job : tables.waits.short_jobs()) {
    tables.ledger.RenewClaim(job->entitlement, tables.turn.now());
    waits = waits || QuotaTaken(tables, *job);
  }
  tables.hand_over.SetWithinUsers(waits);
}

void AskWithinUsers(Tables& tables) {
  if (!tables.hand_over.within_users()) return;
  Ledger& ledger = tables.ledger;
  for (const JobState* job : tables.jobs.open()) {
    tables.work.Charge(1);
    const uint64_t beyond = ledger.BeyondQuota(job->entitlement);
    if (beyond == 0) continue;
    const bool wanted = std::ranges::any_of(tables.waits.short_jobs(), [&](const JobState* other) {
      return other->record.uid == job->record.uid && QuotaTaken(tables, *other);
    });
    if (wanted) ledger.SetUnbacked(job->entitlement, std::max(ledger.UnbackedBy(job->entitlement), beyond));
  }
}

}  // namespace tier::tiering
