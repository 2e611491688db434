// See options_change.h.
#include "daemon/tiering/jobs/options_change.h"

namespace tier::tiering {

void ChangeOptions(Tables& tables, const EngineOptions& options) {
  TIER_CHECK(options.write_behind_start <= options.evict_start, "writes begin at {}, evictions at {}",
             options.write_behind_start, options.evict_start);
  EngineOptions& now = tables.options;
  now.deadline_default = options.deadline_default;
  now.reclaim_deadline = options.reclaim_deadline;
  now.kills_keepers = options.kills_keepers;
  now.idle_after = options.idle_after;
  now.tensors_per_job_max = options.tensors_per_job_max;
  now.leases_per_session_max = options.leases_per_session_max;
  now.metadata_bytes_per_uid_max = options.metadata_bytes_per_uid_max;
  now.write_behind_start = options.write_behind_start;
  now.evict_start = options.evict_start;
  now.prefetch_bytes_max = options.prefetch_bytes_max;
  now.stall_threshold = options.stall_threshold;
  now.write_budget_per_day = options.write_budget_per_day;
  tables.metadata.SetLimit(options.metadata_bytes_per_uid_max);
  tables.write_budget.SetPerDay(options.write_budget_per_day, tables.turn.now());
  // Write-behind, evictions and prefetches follow the new limits only where a job is looked at.
  for (JobState* job : tables.jobs.open()) tables.jobs.NeedMaintenance(*job);
  // A window that is asked back, or a job that is owed memory, may be overdue by now.
  tables.turn.NoteProgress();
}

}  // namespace tier::tiering
