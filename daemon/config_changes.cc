#include "daemon/config_changes.h"

#include <chrono>
#include <utility>

namespace tier {
namespace {

constexpr auto kMailboxRetry = std::chrono::milliseconds(10);

}  // namespace

Status ConfigChanges::Prepare(const config::Config& next) {
  return parts_.metrics.Prepare(ChooseMetricsAddress(next, parts_.paths));
}

void ConfigChanges::Apply(const config::Config& next, std::function<void()> done) {
  parts_.metrics.Commit();
  parts_.listener.SetAttachRate(static_cast<uint32_t>(next.jobs.max_attaches_per_second));
  parts_.quotas.TakeOver(next);
  // The engine outlives this by some closures.
  PostToEngine([&engine = parts_.engine, next, done = std::move(done)] {
    engine.TakeOver(next);
    done();
  });
}

void ConfigChanges::PostToEngine(std::function<void()> closure) {
  late_.push_back(std::move(closure));
  if (late_.size() == 1) PostLate();
}

void ConfigChanges::PostLate() {
  for (; !late_.empty(); late_.pop_front()) {
    if (parts_.engine.mailbox().TryPost(late_.front())) continue;
    timer_.expires_after(kMailboxRetry);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) PostLate();
    });
    return;
  }
}

}  // namespace tier
