// JobTable: jobs that are open, closed jobs that still wait for something, and which of them a turn has work for.
// Engine thread only.
//
// A turn looks at the jobs that asked for it and at no others: a unit that changes something of a job that eviction,
// write-behind or growth follow calls NeedMaintenance; a job that found the transfer port full, or whose write failed,
// is noted here with what it waits for.
// Invariants: an open job is found by its id, its owner number and, where it has one, its key; a closed one by none of
//   these. A job stands in each queue once. What a job keeps for longer than this run is its JobRecord, which changes
//   through Edit alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/tiering/api/options.h"
#include "daemon/tiering/tables/budget_turns.h"
#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/slab.h"

namespace tier::tiering {

class JobTable {
 public:
  // Gives it its owner number. REQUIRES: no open job of that id, or of that key where it has one; of less than
  // kJobKeySize bytes.
  JobState& Open(JobId id, const JobOptions& options, NewJob job);
  JobState& At(JobIndex index) const { return *by_index_[Value(index)]; }        // REQUIRES: open or closing.
  uint32_t capacity() const { return static_cast<uint32_t>(by_index_.size()); }  // Indices of jobs lie below it.
  JobRecord& Edit(const JobState& job) { return records_.Edit(job.index); }
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
  // Jobs that wanted the port when transfers last ended: each has its part of its writes.
  uint32_t port_rivals() const { return port_rivals_; }
  // Jobs whose writes ahead of need wait for the budget of writes, each for its turn (budget_turns.h): each stands in
  // that queue whose last look found that it must wait.
  void WantBudget(const JobState& job);
  // It could not write at its last look, and is looked at again without a call (RetriesByItself). If it stands in the
  // queue it keeps its place there.
  void KeepBudgetPlace(const JobState& job) { queued_[Value(job.index)].retries_by_itself = true; }
  void LeaveBudget(const JobState& job);
  JobState* first_for_budget() const { return budget_turns_.empty() ? nullptr : &At(budget_turns_.first()); }
  // It is to be called when the budget has room: nothing else makes it look.
  bool first_for_budget_waits() const {
    return !budget_turns_.empty() && !queued_[Value(budget_turns_.first())].retries_by_itself;
  }
  // Whether its turn has so many bytes left; else it is over. REQUIRES: it is the first.
  bool TurnAllows(const JobState& job, uint64_t bytes) { return budget_turns_.Allows(job.index, bytes); }
  // It has begun such a write. Where no job waits there are no turns.
  void SpendTurn(const JobState& job, uint64_t bytes) {
    if (budget_turns_.first() == job.index) budget_turns_.Spend(job.index, bytes);
  }
  // It found the port full, or something else that is over in the next turn, and is looked at again then.
  bool RetriesByItself(const JobState& job, base::TimePoint now) const {
    const Queued& queued = queued_[Value(job.index)];
    return queued.port || (queued.write_retry && queued.write_retry_at <= now);
  }
  // Its writes are tried again at that time, and not before.
  void RetryWritesAt(JobState& job, base::TimePoint at);
  void RetryWritesNow(base::TimePoint now);  // Of every job.
  base::TimePoint write_retry_at(const JobState& job) const { return queued_[Value(job.index)].write_retry_at; }
  JobState* TakeWriteRetry(base::TimePoint now);  // One that is due; null: none.
  bool any_write_retry() const { return !write_retries_.empty(); }
  std::optional<base::TimePoint> NextWriteRetry() const;
  // It has something to free that its turn did not reach.
  void NoteFrees(JobState& job);
  bool any_freeing() const { return !freeing_.empty(); }
  void ListFreeing(std::vector<JobState*>* jobs);  // Those that still have some; the others leave the queue.

  bool any_prefetch() const { return prefetches_ != 0; }  // In the queue of any job.

  // Pages of the job that are sealed and in RAM only.
  void AddDirty(JobState& job, uint64_t pages);
  void RemoveDirty(JobState& job, uint64_t pages);
  uint64_t dirty_pages() const { return dirty_pages_; }  // Of all jobs.

  void CheckInvariants() const;

 private:
  using Queue = std::vector<JobState*>;
  // In which queues a job stands.
  struct Queued {
    bool maintenance = false;        // Something changed that write-behind, eviction or growth may follow.
    bool port = false;               // Found the transfer port full: it looks again when transfers end.
    bool budget = false;             // Its writes ahead of need wait for the budget of writes …
    bool retries_by_itself = false;  // … and it is looked at again without a call (KeepBudgetPlace).
    bool freeing = false;            // Has frees that a turn did not reach.
    bool write_retry = false;
    base::TimePoint write_retry_at;  // Of the last retry.
  };
  void AddTo(Queue* queue, bool Queued::* flag, JobState& job);
  void TakeAll(Queue* queue, bool Queued::* flag, Queue* jobs);
  void DropWriteRetry(const JobState& job);

  std::unordered_map<JobId, JobState*> by_id_;
  std::unordered_map<uint32_t, JobState*> by_owner_;
  std::unordered_map<std::string, JobState*> by_key_;
  Slab<JobRecord, JobIndex, 256> records_;
  uint64_t prefetches_ = 0;  // Ranges in all PrefetchQueues.
  std::vector<std::unique_ptr<JobState>> by_index_;
  std::vector<JobState*> open_;
  std::vector<JobState*> closing_;
  JobCounters closed_totals_;
  uint32_t next_owner_ = 1;
  uint32_t port_rivals_ = 0;
  uint64_t dirty_pages_ = 0;

  std::vector<Queued> queued_;  // By index.
  Queue maintenance_;
  Queue port_wanted_;
  BudgetTurns budget_turns_;
  Queue freeing_;
  std::set<std::pair<base::TimePoint, uint64_t>> write_retries_;  // Time, job.
};

}  // namespace tier::tiering
