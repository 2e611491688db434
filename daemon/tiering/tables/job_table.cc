// See job_table.h.
#include "daemon/tiering/tables/job_table.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::tiering {
namespace {

using Queue = std::vector<JobState*>;
using Flag = bool JobState::*;  // Set while the job stands in the queue.

void Add(Queue* queue, Flag flag, JobState& job) {
  if (std::exchange(job.*flag, true)) return;
  queue->push_back(&job);
}

// Empties the queue into `jobs`, but for those that are closed. No allocation in steady state.
void Take(Queue* queue, Flag flag, Queue* jobs) {
  jobs->clear();
  std::swap(*jobs, *queue);
  for (JobState* job : *jobs) job->*flag = false;
  std::erase_if(*jobs, [](const JobState* job) { return job->closing; });
}

}  // namespace

JobState& JobTable::Open(std::unique_ptr<JobState> job) {
  JobState* const opened = job.get();
  opened->owner = memory::OwnerId{next_owner_++};
  TIER_CHECK(by_id_.emplace(opened->id, opened).second, "job {} opened twice", static_cast<uint64_t>(opened->id));
  by_owner_.emplace(static_cast<uint32_t>(opened->owner), opened);
  const std::string& key = opened->options.key;
  TIER_CHECK(key.empty() || by_key_.emplace(key, opened).second, "job {} opened twice", key);
  jobs_.emplace(opened, std::move(job));
  open_.push_back(opened);
  return *opened;
}

JobState* JobTable::Find(JobId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

JobState* JobTable::FindByOwner(memory::OwnerId owner) const {
  const auto found = by_owner_.find(static_cast<uint32_t>(owner));
  return found == by_owner_.end() ? nullptr : found->second;
}

JobState* JobTable::FindByKey(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

void JobTable::Close(JobState& job) {
  TIER_CHECK(!job.closing && Find(job.id) == &job, "job {} closed twice", job.options.key);
  job.closing = true;
  by_id_.erase(job.id);
  by_owner_.erase(static_cast<uint32_t>(job.owner));
  if (!job.options.key.empty()) by_key_.erase(job.options.key);
  std::erase(open_, &job);
  closing_.push_back(&job);
}

void JobTable::Remove(JobState& job) {
  TIER_CHECK(job.closing && jobs_.contains(&job), "job {} is open, or gone", job.options.key);
  AddCounters(job.counters, &closed_totals_);
  std::erase(closing_, &job);
  std::erase(maintenance_, &job);
  std::erase(port_wanted_, &job);
  std::erase(freeing_, &job);
  if (job.write_retries) write_retries_.erase({job.write_retry_at, static_cast<uint64_t>(job.id)});
  jobs_.erase(&job);
}

void JobTable::NeedMaintenance(JobState& job) { Add(&maintenance_, &JobState::needs_maintenance, job); }

void JobTable::TakeMaintenance(std::vector<JobState*>* jobs) {
  Take(&maintenance_, &JobState::needs_maintenance, jobs);
}

void JobTable::WantPort(JobState& job) { Add(&port_wanted_, &JobState::wants_port, job); }

void JobTable::TakePortWanted(std::vector<JobState*>* jobs) { Take(&port_wanted_, &JobState::wants_port, jobs); }

void JobTable::RetryWritesAt(JobState& job, base::TimePoint at) {
  if (job.write_retries) write_retries_.erase({job.write_retry_at, static_cast<uint64_t>(job.id)});
  job.write_retries = true;
  job.write_retry_at = at;
  write_retries_.emplace(at, static_cast<uint64_t>(job.id));
}

JobState* JobTable::TakeWriteRetry(base::TimePoint now) {
  while (!write_retries_.empty() && write_retries_.begin()->first <= now) {
    JobState* const job = Find(JobId{write_retries_.begin()->second});
    write_retries_.erase(write_retries_.begin());
    if (job == nullptr) continue;  // Closed meanwhile: nothing of it is written any more.
    job->write_retries = false;
    return job;
  }
  return nullptr;
}

std::optional<base::TimePoint> JobTable::NextWriteRetry() const {
  if (write_retries_.empty()) return std::nullopt;
  return write_retries_.begin()->first;
}

void JobTable::NoteFrees(JobState& job) { Add(&freeing_, &JobState::freeing, job); }

void JobTable::ListFreeing(std::vector<JobState*>* jobs) {
  std::erase_if(freeing_, [](JobState* job) {
    job->freeing = !job->freed_namespaces.empty() || !job->freed_tensors.empty();
    return !job->freeing;
  });
  jobs->assign(freeing_.begin(), freeing_.end());
}

void JobTable::CheckInvariants() const {
  TIER_CHECK(open_.size() == by_id_.size() && open_.size() == by_owner_.size() &&
                 open_.size() + closing_.size() == jobs_.size(),
             "{} open jobs and {} closing ones of {}", open_.size(), closing_.size(), jobs_.size());
  for (const JobState* job : open_) {
    TIER_CHECK(!job->closing && Find(job->id) == job && FindByOwner(job->owner) == job, "job {}", job->options.key);
    TIER_CHECK(job->options.key.empty() || FindByKey(job->options.key) == job, "job {}", job->options.key);
  }
  const auto queued = [](const std::vector<JobState*>& queue, const JobState& job) {
    return std::ranges::find(queue, &job) != queue.end();
  };
  ForEach([&](const JobState& job) {
    TIER_CHECK(job.needs_maintenance == queued(maintenance_, job) && job.wants_port == queued(port_wanted_, job),
               "job {} is in a queue it does not know of", job.options.key);
    const bool frees = !job.freed_namespaces.empty() || !job.freed_tensors.empty();
    TIER_CHECK(job.freeing == queued(freeing_, job) && (job.freeing || !frees), "job {} has frees that nobody makes",
               job.options.key);
  });
}

}  // namespace tier::tiering
