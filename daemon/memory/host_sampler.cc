// See host_sampler.h.
#include "daemon/memory/host_sampler.h"

#include <optional>
#include <utility>

#include "proto/mutex.h"

namespace tier::memory {

struct HostSampler::Shared {
  Shared(std::string r, std::function<void()> f) : root(std::move(r)), on_sampled(std::move(f)) {}

  const std::string root;
  const std::function<void()> on_sampled;
  Mutex mutex;
  std::optional<HostReading> reading TIER_GUARDED_BY(mutex);

  void Sample() {
    const HostReading read = ReadHost(root).value_or(HostReading{});
    {
      const MutexLock lock(mutex);
      reading = read;
    }
    if (on_sampled) on_sampled();
  }
};

HostSampler::HostSampler(std::string root, base::Workers* workers, std::function<void()> on_sampled)
    : workers_(workers), shared_(std::make_shared<Shared>(std::move(root), std::move(on_sampled))) {}

void HostSampler::Start() {
  if (!under_way_) under_way_ = workers_->TryPost([shared = shared_] { shared->Sample(); });
}

bool HostSampler::Take(HostReading* reading) {
  if (!under_way_) return false;
  const MutexLock lock(shared_->mutex);
  if (!shared_->reading) return false;
  *reading = *std::exchange(shared_->reading, std::nullopt);
  under_way_ = false;
  return true;
}

}  // namespace tier::memory
