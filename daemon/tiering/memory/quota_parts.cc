// See quota_parts.h.
#include "daemon/tiering/memory/quota_parts.h"

namespace tier::tiering {

void OnOtherParts(Tables& tables, uint32_t uid) {
  for (JobState* job : tables.jobs.open()) {
    if (job->record.uid != uid) continue;
    tables.jobs.NeedMaintenance(*job);
    tables.waits.OnRoom(*job);
  }
}

}  // namespace tier::tiering
