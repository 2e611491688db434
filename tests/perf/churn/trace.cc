#include "tests/perf/churn/trace.h"

#include <iterator>
#include <utility>

#include "daemon/base/check.h"
#include "proto/units.h"
#include "tests/support/models/model_shapes.h"

namespace tier::churn {
namespace {

// What training with AdamW keeps: parameters in bf16; gradients, master copies and two moments in fp32.
constexpr uint64_t kWidths[] = {2, 4, 4, 4, 4};
// A little more than a half, one and a half and two fifths of a block, and others: alone in a block they leave much of
// it.
constexpr uint64_t kOddSizes[] = {kMiB + kPageSize, 3 * kMiB + kPageSize, 704 * 1024,  kMiB * 11 / 10,
                                  412 * 1024 + 1,   kMiB * 27 / 16,       9 * kMiB + 5};
constexpr uint64_t kEventsOfAJob = 20'000;  // On average, before it ends.

}  // namespace

Trace::Trace(const TraceOptions& options) : options_(options), random_(options.seed), jobs_(options.jobs) {
  // No tensor is larger than an equal part (StartModel), so a job that frees all that it has can create each of its
  // own.
  TIER_CHECK(options.job_percent * options.jobs >= 100, "{} jobs of {} %", options.jobs, options.job_percent);
  for (Job& job : jobs_) StartModel(&job);
}

void Trace::StartModel(Job* job) {
  const models::ModelShape& model = models::Models()[Draw(models::Models().size())];
  job->number = jobs_begun_++;
  job->sizes.clear();
  if (options_.odd_sizes && job->number % 2 == 0) {
    job->sizes.assign(std::begin(kOddSizes), std::end(kOddSizes));
    return;
  }
  for (const uint64_t width : kWidths) {
    for (const uint64_t size : models::TensorSizes(model, width)) {
      if (size <= options_.peak_bytes / jobs_.size()) job->sizes.push_back(size);
    }
  }
}

Event Trace::Create(Job* job, uint64_t bytes) {
  job->live.push_back({.number = created_, .bytes = bytes});
  job->live_bytes += bytes;
  live_bytes_ += bytes;
  return {.tensor = created_++, .bytes = bytes, .job = job->number};
}

Event Trace::FreeOneOf(Job* job) {
  std::swap(job->live[Draw(job->live.size())], job->live.back());
  const Tensor tensor = job->live.back();
  job->live.pop_back();
  job->live_bytes -= tensor.bytes;
  live_bytes_ -= tensor.bytes;
  return {.tensor = tensor.number, .job = job->number};
}

Event Trace::EndMore() {
  Event event = FreeOneOf(ending_);
  event.ends_job = ending_->live.empty();
  if (event.ends_job) StartModel(std::exchange(ending_, nullptr));
  return event;
}

bool Trace::Next(Event* event) {
  if (done_++ == options_.events) return false;
  if (ending_ == nullptr && Draw(kEventsOfAJob) == 0) {
    Job* const job = &jobs_[Draw(jobs_.size())];
    if (!job->live.empty()) ending_ = job;
  }
  if (ending_ != nullptr) {
    *event = EndMore();
    return true;
  }
  if (creating_ == nullptr) {
    creating_ = &jobs_[Draw(jobs_.size())];
    wanted_bytes_ = creating_->sizes[Draw(creating_->sizes.size())];
  }
  if (creating_->live_bytes + wanted_bytes_ > options_.peak_bytes / 100 * options_.job_percent) {
    *event = FreeOneOf(creating_);
    return true;
  }
  if (live_bytes_ + wanted_bytes_ <= options_.peak_bytes) {
    *event = Create(std::exchange(creating_, nullptr), wanted_bytes_);
    return true;
  }
  Job* from = &jobs_[Draw(jobs_.size())];
  while (from->live.empty()) from = &jobs_[Draw(jobs_.size())];
  *event = FreeOneOf(from);
  return true;
}

}  // namespace tier::churn
