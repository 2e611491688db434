#include "libclient/client/open_jobs.h"

#include <algorithm>
#include <atomic>

#include "libclient/client/fork_guard.h"

namespace tier::client {
namespace {

// The list of one process. A child replaces its parent's, whose lock some thread may have held at the fork.
struct ProcessList {
  explicit ProcessList(uint32_t of) : generation(of) {}
  const uint32_t generation;
  OpenJobs jobs;
};
constinit std::atomic<ProcessList*> g_list{nullptr};

}  // namespace

OpenJobs& OpenJobs::OfProcess() {
  const uint32_t generation = ForkGuard::Generation();
  ProcessList* list = g_list.load(std::memory_order_acquire);
  if (list != nullptr && list->generation == generation) return list->jobs;
  auto* const made = new ProcessList(generation);
  if (g_list.compare_exchange_strong(list, made)) return made->jobs;
  delete made;  // Another thread was faster.
  return list->jobs;
}

void OpenJobs::Add(const OpenJob& job) {
  const MutexLock lock(mutex_);
  jobs_.push_back(job);
}

void OpenJobs::Remove(const OpenJob& job) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(jobs_, job);
  if (found != jobs_.end()) jobs_.erase(found);
}

OpenJob OpenJobs::Find(std::span<const std::string> sockets, const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto matches = [&](const OpenJob& job) {
    return job.name == name && std::ranges::find(sockets, job.socket) != sockets.end();
  };
  const auto found = std::find_if(jobs_.rbegin(), jobs_.rend(), matches);
  return found == jobs_.rend() ? OpenJob{} : *found;
}

}  // namespace tier::client
