// See job_table.h.
#include "daemon/tiering/tables/job_table.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {
void JobTable::AddTo(Queue* queue, bool Queued::* flag, JobState& job) {
  if (std::exchange(queued_[Value(job.index)].*flag, true)) return;
  queue->push_back(&job);
}

// Empties the queue into `jobs`, except those that are closed. No allocation in steady state.
void JobTable::TakeAll(Queue* queue, bool Queued::* flag, Queue* jobs) {
  jobs->clear();
  std::swap(*jobs, *queue);
  for (const JobState* job : *jobs) queued_[Value(job->index)].*flag = false;
  std::erase_if(*jobs, [](const JobState* job) { return job->record.closing; });
}

JobState& JobTable::Open(JobId id, const JobOptions& options, NewJob job) {
  const JobIndex index = records_.Allocate();
  JobRecord& record = records_.Edit(index);
  record = {.id = id,
            .owner = memory::OwnerId{next_owner_++},
            .uid = options.uid,
            .guarantee_bytes = options.guarantee_bytes,
            .limit_bytes = options.limit_bytes,
            .ssd_guarantee_bytes = options.ssd_guarantee_bytes,
            .ssd_limit_bytes = options.ssd_limit_bytes,
            .named = options.named || options.resume,  // What is resumed outlives its sessions again.
            .replaces_existing = options.replace_existing};
  TIER_CHECK(options.key.size() < record.key.size(), "a key of {} bytes", options.key.size());
  std::ranges::copy(options.key, record.key.begin());
  if (Value(index) >= by_index_.size()) {
    by_index_.resize(size_t{Value(index)} + 1);
    queued_.resize(by_index_.size());
  }
  queued_[Value(index)] = {};
  by_index_[Value(index)] = std::make_unique<JobState>(index, record, std::move(job), prefetches_);
  JobState* const opened = by_index_[Value(index)].get();
  TIER_CHECK(by_id_.emplace(id, opened).second, "job {} opened twice", static_cast<uint64_t>(id));
  by_owner_.emplace(static_cast<uint32_t>(record.owner), opened);
  TIER_CHECK(opened->key.empty() || by_key_.emplace(opened->key, opened).second, "job {} opened twice", opened->key);
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
  TIER_CHECK(!job.record.closing && Find(job.id) == &job, "job {} closed twice", job.key);
  Edit(job).closing = true;
  by_id_.erase(job.id);
  by_owner_.erase(static_cast<uint32_t>(job.record.owner));
  if (!job.key.empty()) by_key_.erase(job.key);
  std::erase(open_, &job);
  LeaveBudget(job);
  closing_.push_back(&job);
}

void JobTable::Remove(JobState& job) {
  TIER_CHECK(job.record.closing && &At(job.index) == &job, "job {} is open, or gone", job.key);
  AddCounters(job.record.counters, &closed_totals_);
  std::erase(closing_, &job);
  std::erase(maintenance_, &job);
  std::erase(port_wanted_, &job);
  std::erase(freeing_, &job);
  DropWriteRetry(job);
  const JobIndex index = job.index;
  by_index_[Value(index)].reset();
  records_.Free(index);
}

void JobTable::NeedMaintenance(JobState& job) { AddTo(&maintenance_, &Queued::maintenance, job); }

void JobTable::TakeMaintenance(std::vector<JobState*>* jobs) { TakeAll(&maintenance_, &Queued::maintenance, jobs); }

void JobTable::WantPort(JobState& job) { AddTo(&port_wanted_, &Queued::port, job); }

void JobTable::TakePortWanted(std::vector<JobState*>* jobs) {
  TakeAll(&port_wanted_, &Queued::port, jobs);
  port_rivals_ = static_cast<uint32_t>(jobs->size());
}

void JobTable::WantBudget(const JobState& job) {
  Queued& queued = queued_[Value(job.index)];
  queued.retries_by_itself = false;
  if (!std::exchange(queued.budget, true)) budget_turns_.Join(job.index);
}

void JobTable::LeaveBudget(const JobState& job) {
  if (std::exchange(queued_[Value(job.index)].budget, false)) budget_turns_.Leave(job.index);
}

void JobTable::AddDirty(JobState& job, uint64_t pages) {
  job.pages.AddDirty(pages);
  dirty_pages_ += pages;
}

void JobTable::RemoveDirty(JobState& job, uint64_t pages) {
  job.pages.RemoveDirty(pages);
  dirty_pages_ -= pages;
}

void JobTable::DropWriteRetry(const JobState& job) {
  const Queued& queued = queued_[Value(job.index)];
  if (queued.write_retry) write_retries_.erase({queued.write_retry_at, static_cast<uint64_t>(job.id)});
}

void JobTable::RetryWritesAt(JobState& job, base::TimePoint at) {
  DropWriteRetry(job);
  Queued& queued = queued_[Value(job.index)];
  queued.write_retry = true;
  queued.write_retry_at = at;
  write_retries_.emplace(at, static_cast<uint64_t>(job.id));
}

void JobTable::RetryWritesNow(base::TimePoint now) {
  std::vector<JobState*> later;
  for (const auto& [at, id] : write_retries_) {
    JobState* const job = at <= now ? nullptr : Find(JobId{id});
    if (job != nullptr) later.push_back(job);
  }
  for (JobState* job : later) RetryWritesAt(*job, now);
}

JobState* JobTable::TakeWriteRetry(base::TimePoint now) {
  while (!write_retries_.empty() && write_retries_.begin()->first <= now) {
    JobState* const job = Find(JobId{write_retries_.begin()->second});
    write_retries_.erase(write_retries_.begin());
    if (job == nullptr) continue;  // Closed meanwhile: nothing of it is written any more.
    queued_[Value(job->index)].write_retry = false;
    return job;
  }
  return nullptr;
}

std::optional<base::TimePoint> JobTable::NextWriteRetry() const {
  if (write_retries_.empty()) return std::nullopt;
  return write_retries_.begin()->first;
}

void JobTable::NoteFrees(JobState& job) { AddTo(&freeing_, &Queued::freeing, job); }

void JobTable::ListFreeing(std::vector<JobState*>* jobs) {
  std::erase_if(freeing_, [&](const JobState* job) {
    bool& freeing = queued_[Value(job->index)].freeing;
    freeing = job->frees.any_frees();
    return !freeing;
  });
  jobs->assign(freeing_.begin(), freeing_.end());
}

void JobTable::CheckInvariants() const {
  TIER_CHECK(open_.size() == by_id_.size() && open_.size() == by_owner_.size() &&
                 open_.size() + closing_.size() == records_.used(),
             "{} open jobs and {} closing ones of {}", open_.size(), closing_.size(), records_.used());
  for (const JobState* job : open_) {
    TIER_CHECK(!job->record.closing && Find(job->id) == job && FindByOwner(job->record.owner) == job, "job {}",
               job->key);
    TIER_CHECK(job->key.empty() || FindByKey(job->key) == job, "job {}", job->key);
  }
  const auto queued = [](const std::vector<JobState*>& queue, const JobState& job) {
    return std::ranges::find(queue, &job) != queue.end();
  };
  ForEach([&](const JobState& job) {
    const Queued& is = queued_[Value(job.index)];
    TIER_CHECK(is.maintenance == queued(maintenance_, job) && is.port == queued(port_wanted_, job),
               "job {} is in a queue it does not know of", job.key);
    TIER_CHECK(is.freeing == queued(freeing_, job) && (is.freeing || !job.frees.any_frees()),
               "job {} has frees and is not in the queue for them", job.key);
    TIER_CHECK(is.budget == budget_turns_.Has(job.index) && !(is.budget && job.record.closing),
               "job {} waits for the budget of writes, and is closed or does not know of it", job.key);
  });
  budget_turns_.CheckInvariants();
}

}  // namespace tier::tiering
