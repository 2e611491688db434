#include "daemon/session/event_log.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "proto/mutex.h"
#include "proto/start_thread.h"

namespace tier::session {

// One subscriber: its queue and the thread that empties it.
class EventLog::Watcher {
 public:
  static Result<std::unique_ptr<Watcher>> Start(const Caller& caller, std::function<void(const Event&)> callback) {
    std::unique_ptr<Watcher> watcher(new Watcher(caller, std::move(callback)));
    auto thread =
        proto::StartThread("tierd-watch", proto::BlockedSignals::kAsynchronous, [raw = watcher.get()] { raw->Run(); });
    if (!thread) return std::unexpected(std::move(thread.error()));
    watcher->thread_ = std::move(*thread);
    return watcher;
  }
  ~Watcher() {
    if (!thread_.joinable()) return;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  const Caller& caller() const { return caller_; }

  // False: the queue is full and the event is lost to this watcher.
  bool Offer(const Event& event, const Job* job) {
    if (job != nullptr && !JobRegistry::MaySee(caller_, *job)) return true;
    const MutexLock lock(mutex_);
    ++sequence_;
    TIER_CHECK(queue_.size() <= kEventsQueuedMax, "queued {}", queue_.size());
    if (queue_.size() == kEventsQueuedMax) return false;
    queue_.push_back(event);
    queue_.back().sequence = sequence_;
    wake_.NotifyOne();
    return true;
  }

 private:
  Watcher(Caller caller, std::function<void(const Event&)> callback)
      : caller_(std::move(caller)), callback_(std::move(callback)) {}
  void Run() {
    const MutexLock lock(mutex_);
    for (;;) {
      while (queue_.empty() && !stopping_) wake_.Wait(mutex_);
      if (stopping_) return;
      const Event event = std::move(queue_.front());
      queue_.pop_front();
      const MutexUnlock unlocked(mutex_);
      callback_(event);
    }
  }

  const Caller caller_;
  const std::function<void(const Event&)> callback_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Event> queue_ TIER_GUARDED_BY(mutex_);
  uint64_t sequence_ TIER_GUARDED_BY(mutex_) = 0;
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses what stands above.
};

struct EventLog::Shared {
  Mutex mutex;
  std::vector<Watcher*> watchers TIER_GUARDED_BY(mutex);  // Owned by their subscriptions.
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
  const MutexLock lock(shared_->mutex);
  for (Watcher* watcher : shared_->watchers) {
    if (!watcher->Offer(event, job)) shared_->dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

Status EventLog::CheckRoomFor(const std::vector<Watcher*>& watchers, const Caller& caller) {
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
  const MutexLock lock(shared_->mutex);
  if (auto room = CheckRoomFor(shared_->watchers, caller); !room) return std::unexpected(std::move(room.error()));
  auto started = Watcher::Start(caller, std::move(callback));
  if (!started) return std::unexpected(std::move(started.error()));
  Watcher* watcher = started->release();
  shared_->watchers.push_back(watcher);
  return std::shared_ptr<void>(watcher, [shared = shared_](Watcher* gone) {
    {
      const MutexLock erase_lock(shared->mutex);
      const size_t erased = std::erase(shared->watchers, gone);
      TIER_CHECK(erased == 1, "watcher {} times", erased);
    }
    delete gone;  // Joins its thread, outside the lock that Emit takes.
  });
}

size_t EventLog::watchers() const {
  const MutexLock lock(shared_->mutex);
  return shared_->watchers.size();
}

uint64_t EventLog::dropped() const { return shared_->dropped.load(std::memory_order_relaxed); }

}  // namespace tier::session
