// JobTable: jobs that are open, closed jobs that still wait for something, and which of them a turn has work for.
// Engine thread only.
//
// A turn looks at the jobs that asked for it and at no others: a unit that changes something of a job that eviction,
// write-behind or growth follow calls NeedMaintenance; a job that found the transfer port full, or whose write failed,
// is noted here with what it waits for.
// Invariants: an open job is found by its id, its owner number and, where it has one, its key; a closed one by none of
//   these. A job stands in each queue once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/tiering/tables/job_state.h"

namespace tier::tiering {

class JobTable {
 public:
  // Gives it its owner number. REQUIRES: no open job of that id, or of that key where it has one.
  JobState& Open(std::unique_ptr<JobState> job);
  JobState* Find(JobId id) const;
  JobState* FindByOwner(memory::OwnerId owner) const;
  JobState* FindByKey(const std::string& key) const;
  // Gone for everybody; it stays among the closing ones until Remove.
  void Close(JobState& job);
  void Remove(JobState& job);  // REQUIRES: closed.

  const std::vector<JobState*>& open() const { return open_; }
  const std::vector<JobState*>& closing() const { return closing_; }
  template <typename Visit>
  void ForEach(Visit visit) const {  // Open or closing.
    for (JobState* job : open_) visit(*job);
    for (JobState* job : closing_) visit(*job);
  }
  // Counters of jobs that are gone.
  const JobCounters& closed_totals() const { return closed_totals_; }

  // Queues. An Add of a job that stands there already does nothing; a Take empties the queue.
  void NeedMaintenance(JobState& job);
  bool any_needs_maintenance() const { return !maintenance_.empty(); }
  void TakeMaintenance(std::vector<JobState*>* jobs);
  void WantPort(JobState& job);
  void TakePortWanted(std::vector<JobState*>* jobs);
  // Its writes are tried again at that time, and not before.
  void RetryWritesAt(JobState& job, base::TimePoint at);
  JobState* TakeWriteRetry(base::TimePoint now);  // One that is due; null: none.
  std::optional<base::TimePoint> NextWriteRetry() const;
  // It has something to free that its turn did not reach.
  void NoteFrees(JobState& job);
  void ListFreeing(std::vector<JobState*>* jobs);  // Those that still have some; the others leave the queue.

  void CheckInvariants() const;

 private:
  std::unordered_map<JobId, JobState*> by_id_;
  std::unordered_map<uint32_t, JobState*> by_owner_;
  std::unordered_map<std::string, JobState*> by_key_;
  std::unordered_map<const JobState*, std::unique_ptr<JobState>> jobs_;
  std::vector<JobState*> open_;
  std::vector<JobState*> closing_;
  JobCounters closed_totals_;
  uint32_t next_owner_ = 1;

  std::vector<JobState*> maintenance_;
  std::vector<JobState*> port_wanted_;
  std::vector<JobState*> freeing_;
  std::set<std::pair<base::TimePoint, uint64_t>> write_retries_;  // Time, job.
};

}  // namespace tier::tiering
