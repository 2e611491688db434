// Who calls ControlApi in tests, and what is told to a watcher.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/session/control_api.h"

namespace tier::session::testing {

inline const Caller kAlice{.uid = 1000};
inline const Caller kBob{.uid = 1001};
inline const Caller kAdmin{.uid = 0, .admin = true};

// Collects events; Wait gives the n-th.
class Collector {
 public:
  // Events of these kinds. None named: all, but those that sum up what devices do.
  explicit Collector(std::set<std::string> kinds = {}) : kinds_(std::move(kinds)) {}
  std::function<void(const Event&)> callback() {
    return [this](const Event& event) {
      static const std::set<std::string> kSummaries = {"degraded", "recovered"};
      if (kinds_.empty() ? kSummaries.contains(event.kind) : !kinds_.contains(event.kind)) return;
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      arrived_.notify_all();
    };
  }
  Event Wait(size_t n) {
    std::unique_lock lock(mutex_);
    const bool there = arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return events_.size() > n; });
    TIER_CHECK(there, "event {}", n);
    return events_[n];
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  const std::set<std::string> kinds_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
};

}  // namespace tier::session::testing
