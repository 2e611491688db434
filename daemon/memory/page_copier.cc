// See page_copier.h.
#include "daemon/memory/page_copier.h"

#include <cstring>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"
#include "proto/mutex.h"
#include "proto/urgency.h"

namespace tier::memory {
namespace {

// Reads a byte of each page.
bool CanRead(const std::byte* from, uint32_t length) {
  return base::RunGuarded([&] {
    for (uint32_t at = 0; at < length; at += kPageSize) (void)*static_cast<const volatile std::byte*>(from + at);
  });
}

}  // namespace

CopyOutcome CopyGuarded(const PageCopy& copy) {
  if (base::RunGuarded([&] { std::memcpy(copy.to, copy.from, copy.length); })) return CopyOutcome::kDone;
  return CanRead(copy.from, copy.length) ? CopyOutcome::kTargetFault : CopyOutcome::kSourceFault;
}

struct PageCopier::Shared {
  explicit Shared(std::function<void()> f) : on_finished(std::move(f)) {}

  const std::function<void()> on_finished;
  Mutex mutex;
  CondVar idle;
  std::vector<PageCopyResult> results TIER_GUARDED_BY(mutex);
  uint32_t tasks TIER_GUARDED_BY(mutex) = 0;  // Posted or running.

  void Run(const std::vector<PageCopy>& copies);
};

void PageCopier::Shared::Run(const std::vector<PageCopy>& copies) {
  std::vector<PageCopyResult> done;
  done.reserve(copies.size());
  for (const PageCopy& copy : copies) done.push_back({copy.cookie, CopyGuarded(copy)});
  {
    const MutexLock lock(mutex);
    results.insert(results.end(), done.begin(), done.end());
  }
  if (on_finished) on_finished();
  const MutexLock lock(mutex);  // Last: the copier may end, and with it what on_finished needs.
  if (--tasks == 0) idle.NotifyAll();
}

PageCopier::PageCopier(base::Workers* workers, std::function<void()> on_finished)
    : workers_(workers), shared_(std::make_shared<Shared>(std::move(on_finished))) {}

PageCopier::~PageCopier() {
  const MutexLock lock(shared_->mutex);
  while (shared_->tasks != 0) shared_->idle.Wait(shared_->mutex);
}

void PageCopier::AddTask(std::vector<PageCopy> copies) {
  waiting_.push_back(std::make_shared<const std::vector<PageCopy>>(std::move(copies)));
}

bool PageCopier::TryPost(const Task& task) {
  {
    const MutexLock lock(shared_->mutex);
    ++shared_->tasks;
  }
  const bool posted = workers_->TryPost([shared = shared_, task] {
    shared->Run(*task);
    proto::GiveWay();
  });
  if (posted) return true;
  const MutexLock lock(shared_->mutex);
  --shared_->tasks;
  return false;
}

void PageCopier::Submit() {
  inflight_ += static_cast<uint32_t>(started_.size());
  std::vector<PageCopy> copies;
  uint64_t bytes = 0;
  for (const PageCopy& copy : started_) {
    TIER_CHECK(copy.from + copy.length <= copy.to || copy.to + copy.length <= copy.from,
               "a copy of {} bytes onto itself", copy.length);
    copies.push_back(copy);
    bytes += copy.length;
    if (bytes < kTaskBytes) continue;
    AddTask(std::exchange(copies, {}));
    bytes = 0;
  }
  if (!copies.empty()) AddTask(std::move(copies));
  started_.clear();
  while (!waiting_.empty() && TryPost(waiting_.front())) waiting_.pop_front();
}

void PageCopier::Poll(std::vector<PageCopyResult>* results) {
  if (inflight_ == 0) return;
  const MutexLock lock(shared_->mutex);
  TIER_CHECK(shared_->results.size() <= inflight_, "{} results of {} copies", shared_->results.size(), inflight_);
  inflight_ -= static_cast<uint32_t>(shared_->results.size());
  results->insert(results->end(), shared_->results.begin(), shared_->results.end());
  shared_->results.clear();
}

}  // namespace tier::memory
