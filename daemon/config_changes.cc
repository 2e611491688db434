#include "daemon/config_changes.h"

#include <atomic>
#include <memory>
#include <utility>

namespace tier {

std::string SmartFileOf(const config::Config& config) {
  return config.daemon.is_private ? std::string() : config.ssd.smart_file;
}

// Quotas may have to ask the user database first; nothing else waits for that.
void ConfigChanges::Apply(const config::Config& next, std::function<void()> done) {
  parts_.listener.SetAttachRate(static_cast<uint32_t>(next.jobs.max_attaches_per_second));
  parts_.listener.SetEndsProcesses(next.jobs.kills_keepers());
  parts_.smart.SetPath(SmartFileOf(next));
  const std::function<void()> one_done = [left = std::make_shared<std::atomic<int>>(2), done = std::move(done)] {
    if (left->fetch_sub(1) == 1) done();
  };
  parts_.quotas.TakeOver(next, one_done);
  // The engine outlives this by some closures.
  posts_.Post([&engine = parts_.engine, next, one_done] {
    engine.TakeOver(next);
    one_done();
  });
}

}  // namespace tier
