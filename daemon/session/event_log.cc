#include "daemon/session/event_log.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <stop_token>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

// One subscriber: its queue and the thread that empties it.
class EventLog::Watcher {
 public:
  Watcher(Caller caller, std::function<void(const Event&)> callback)
      : caller_(std::move(caller)),
        callback_(std::move(callback)),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  const Caller& caller() const { return caller_; }

  // False: the queue is full and the event is lost to this watcher.
  bool Offer(const Event& event, const Job* job) {
    if (job != nullptr && !JobRegistry::MaySee(caller_, *job)) return true;
    const std::lock_guard lock(mutex_);
    ++sequence_;
    TIER_CHECK(queue_.size() <= kEventsQueuedMax, "queued {}", queue_.size());
    if (queue_.size() == kEventsQueuedMax) return false;
    queue_.push_back(event);
    queue_.back().sequence = sequence_;
    wake_.notify_one();
    return true;
  }

 private:
  void Run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [this] { return !queue_.empty(); })) {
      const Event event = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      callback_(event);
      lock.lock();
      if (stop.stop_requested()) return;
    }
  }

  const Caller caller_;
  const std::function<void(const Event&)> callback_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Event> queue_;  // Under mutex_.
  uint64_t sequence_ = 0;    // Under mutex_.
  std::jthread thread_;      // Last: it uses what stands above.
};

struct EventLog::Shared {
  std::mutex mutex;
  std::vector<Watcher*> watchers;  // Under mutex. Owned by their subscriptions.
  std::atomic<uint64_t> dropped{0};
};

EventLog::EventLog() : shared_(std::make_shared<Shared>()) {}
EventLog::~EventLog() = default;

void EventLog::Emit(const char* kind, const Job* job, std::string message) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Event event = {.sequence = 0,
                       .unix_time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                       .kind = kind,
                       .job = job == nullptr ? std::string() : job->name,
                       .message = std::move(message)};
  const std::lock_guard lock(shared_->mutex);
  for (Watcher* watcher : shared_->watchers) {
    if (!watcher->Offer(event, job)) shared_->dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

Status EventLog::CheckRoomFor(const Caller& caller) const {
  const auto& watchers = shared_->watchers;
  TIER_CHECK(watchers.size() <= kWatchersMax, "watchers {}", watchers.size());
  const auto same = [&](const Watcher* watcher) {
    return watcher->caller().uid == caller.uid && watcher->caller().admin == caller.admin;
  };
  const auto own = static_cast<size_t>(std::count_if(watchers.begin(), watchers.end(), same));
  if (own >= kWatchersPerUidMax) {
    return Fail(Code::kNoMemory, fmt::format("uid {} watches {} times already, the limit is {}: end one of these",
                                             caller.uid, own, kWatchersPerUidMax));
  }
  const size_t limit = caller.admin ? kWatchersMax : kWatchersMax - kWatchersPerUidMax;
  if (watchers.size() < limit) return {};
  return Fail(Code::kNoMemory, fmt::format("{} watchers are there already, the limit is {}", watchers.size(), limit));
}

Result<std::shared_ptr<void>> EventLog::Watch(const Caller& caller, std::function<void(const Event&)> callback) {
  TIER_CHECK(callback != nullptr, "uid {} watches without a callback", caller.uid);
  const std::lock_guard lock(shared_->mutex);
  if (auto room = CheckRoomFor(caller); !room) return std::unexpected(std::move(room.error()));
  auto* watcher = new Watcher(caller, std::move(callback));
  shared_->watchers.push_back(watcher);
  return std::shared_ptr<void>(watcher, [shared = shared_](Watcher* gone) {
    {
      const std::lock_guard erase_lock(shared->mutex);
      const size_t erased = std::erase(shared->watchers, gone);
      TIER_CHECK(erased == 1, "watcher {} times", erased);
    }
    delete gone;  // Joins its thread, outside the lock that Emit takes.
  });
}

size_t EventLog::watchers() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->watchers.size();
}

uint64_t EventLog::dropped() const { return shared_->dropped.load(std::memory_order_relaxed); }

}  // namespace tier::session
