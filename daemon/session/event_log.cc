#include "daemon/session/event_log.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "proto/mutex.h"
#include "proto/start_thread.h"

namespace tier::session {
namespace {

int64_t UnixTimeMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// Never in the middle of a UTF-8 sequence.
std::string CutMessage(std::string message) {
  if (message.size() <= kKeptMessageBytesMax) return message;
  size_t length = kKeptMessageBytesMax;
  while (length > 0 && (static_cast<unsigned char>(message[length]) & 0xc0) == 0x80) --length;
  message.resize(length);
  return message + " ...";
}

// What `caller` is told of an event whose sentence is for administrators, if there is a sentence for others.
Event ForCaller(const Event& event, const Caller& caller, const std::optional<std::string>& for_others) {
  Event told = event;
  if (!caller.admin && for_others) told.message = *for_others;
  return told;
}

// The latest events, with whose job each was of.
class KeptEvents {
 public:
  explicit KeptEvents(uint64_t gone_through) : gone_through_(gone_through) {}

  void Add(Event event, const Job* job, std::optional<std::string> for_others) {
    event.message = CutMessage(std::move(event.message));
    if (kept_.size() == kEventsKeptMax) {
      gone_through_ = kept_.front().event.sequence;
      kept_.pop_front();
    }
    TIER_CHECK(event.sequence > gone_through_, "event {} behind {}", event.sequence, gone_through_);
    kept_.push_back({.event = std::move(event),
                     .of_job = job != nullptr,
                     .uid = job == nullptr ? 0 : job->uid,
                     .token = job == nullptr ? std::string() : job->token,
                     .for_others = std::move(for_others)});
  }
  uint64_t gone_through() const { return gone_through_; }  // None up to this is kept.
  void AddSince(uint64_t since, const Caller& caller, std::vector<Event>* events) const {
    for (const Kept& one : kept_) {
      const bool visible = !one.of_job || JobRegistry::MaySee(caller, one.uid, one.token);
      if (one.event.sequence > since && visible) events->push_back(ForCaller(one.event, caller, one.for_others));
    }
  }

 private:
  struct Kept {
    Event event;
    bool of_job = false;
    uint32_t uid = 0;
    std::string token;
    std::optional<std::string> for_others;  // Of an event of the machine, whose sentence is for administrators.
  };
  uint64_t gone_through_;
  std::deque<Kept> kept_;
};

}  // namespace

// One subscriber: its queue and the thread that empties it.
class EventLog::Watcher {
 public:
  // It gets `earlier` first.
  static Result<std::unique_ptr<Watcher>> Start(const Caller& caller, std::function<void(const Event&)> callback,
                                                std::vector<Event> earlier) {
    std::unique_ptr<Watcher> watcher(new Watcher(caller, std::move(callback), std::move(earlier)));
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
  bool Offer(const Event& event, const Job* job, const std::optional<std::string>& for_others) {
    if (job != nullptr && !JobRegistry::MaySee(caller_, *job)) return true;
    const MutexLock lock(mutex_);
    TIER_CHECK(queue_.size() <= kEventsQueuedMax + 1, "queued {}", queue_.size());
    const bool full = queue_.size() >= kEventsQueuedMax;
    if (!full) {
      queue_.push_back({.event = ForCaller(event, caller_, for_others)});
    } else if (queue_.back().lost != 0) {
      queue_.back() = {.event = event, .lost = queue_.back().lost + 1};
    } else {
      queue_.push_back({.event = event, .lost = 1});
    }
    wake_.NotifyOne();
    return !full;
  }

 private:
  struct Queued {
    Event event;        // The last one that was lost, if there are any.
    uint64_t lost = 0;  // So many were.
  };
  Watcher(Caller caller, std::function<void(const Event&)> callback, std::vector<Event> earlier)
      : caller_(std::move(caller)), callback_(std::move(callback)), earlier_(std::move(earlier)) {}
  void Run() {
    for (const Event& event : std::exchange(earlier_, {})) {
      if (stopping_.load(std::memory_order_relaxed)) return;
      callback_(event);
    }
    const MutexLock lock(mutex_);
    for (;;) {
      while (queue_.empty() && !stopping_) wake_.Wait(mutex_);
      if (stopping_) return;
      const Queued next = std::move(queue_.front());
      queue_.pop_front();
      const MutexUnlock unlocked(mutex_);
      callback_(next.lost == 0 ? next.event : LostEvent(next));
    }
  }
  static Event LostEvent(const Queued& queued) {
    return {
        .sequence = queued.event.sequence,
        .unix_time_ms = queued.event.unix_time_ms,
        .kind = kEventsLost,
        .job = {},
        .message = base::Counted(queued.lost, "event is", "events are") + " missing here: this watcher was too slow"};
  }

  const Caller caller_;
  const std::function<void(const Event&)> callback_;
  std::vector<Event> earlier_;  // Of the thread alone, once it runs.
  Mutex mutex_;
  CondVar wake_;
  std::deque<Queued> queue_ TIER_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};  // Set under the mutex, so that a wait sees it.
  std::thread thread_;                 // Last: it uses what stands above.
};

struct EventLog::Shared {
  explicit Shared(uint64_t last) : first_base(last), last_sequence(last), of_jobs(last), of_machine(last) {}

  // The events that are gone came before the next one that is kept. Without one, the time of the question stays.
  static void DateLost(std::vector<Event>* events) {
    const auto lost = std::ranges::find(*events, kEventsLost, &Event::kind);
    if (lost != events->end() && std::next(lost) != events->end()) lost->unix_time_ms = std::next(lost)->unix_time_ms;
  }
  // A caller that knows a later number than the last has it from a daemon whose clock went ahead.
  std::vector<Event> Since(const Caller& caller, uint64_t since) const TIER_REQUIRES(mutex) {
    std::vector<Event> events;
    const bool of_another = since > last_sequence;
    const uint64_t gone_through = std::max(of_jobs.gone_through(), of_machine.gone_through());
    if (since != 0 && (of_another || since < gone_through)) {
      events.push_back(
          {.sequence = of_another ? first_base : gone_through,
           .unix_time_ms = UnixTimeMs(),
           .kind = kEventsLost,
           .job = {},
           .message = since < first_base || of_another
                          ? "events are missing here: the daemon has been started since"
                          : fmt::format("events are missing here: the daemon keeps the last {}", kEventsKeptMax)});
    }
    const uint64_t from = of_another ? 0 : since;
    of_jobs.AddSince(from, caller, &events);
    of_machine.AddSince(from, caller, &events);
    std::ranges::sort(events, {}, &Event::sequence);
    DateLost(&events);
    TIER_CHECK(events.size() <= 2 * kEventsKeptMax + 1, "{} events", events.size());
    return events;
  }

  mutable Mutex mutex;
  std::vector<Watcher*> watchers TIER_GUARDED_BY(mutex);  // Owned by their subscriptions.
  std::atomic<uint64_t> dropped{0};
  const uint64_t first_base;
  uint64_t last_sequence TIER_GUARDED_BY(mutex);
  KeptEvents of_jobs TIER_GUARDED_BY(mutex);
  KeptEvents of_machine TIER_GUARDED_BY(mutex);
};

EventLog::EventLog(uint64_t last_sequence) : shared_(std::make_shared<Shared>(last_sequence)) {}
EventLog::~EventLog() = default;

uint64_t EventLog::SequenceOfNow() { return static_cast<uint64_t>(UnixTimeMs()) * 1000; }

void EventLog::Emit(const char* kind, const Job* job, std::string message) {
  Tell({.sequence = 0,
        .unix_time_ms = UnixTimeMs(),
        .kind = kind,
        .job = job == nullptr ? std::string() : job->name,
        .message = std::move(message),
        .uid = job == nullptr ? std::nullopt : std::optional(job->uid)},
       job, std::nullopt);
}

void EventLog::EmitForAdministrators(const char* kind, std::string message, std::string for_others) {
  Tell({.sequence = 0, .unix_time_ms = UnixTimeMs(), .kind = kind, .job = {}, .message = std::move(message)}, nullptr,
       std::move(for_others));
}

void EventLog::Tell(Event event, const Job* job, std::optional<std::string> for_others) {
  TIER_CHECK(job == nullptr || !for_others, "event {} of job '{}' has a sentence for others", event.kind, job->name);
  const MutexLock lock(shared_->mutex);
  event.sequence = ++shared_->last_sequence;
  TIER_CHECK(event.sequence > shared_->first_base, "event {} of a daemon that begins behind {}", event.sequence,
             shared_->first_base);
  for (Watcher* watcher : shared_->watchers) {
    if (!watcher->Offer(event, job, for_others)) shared_->dropped.fetch_add(1, std::memory_order_relaxed);
  }
  (job == nullptr ? shared_->of_machine : shared_->of_jobs).Add(std::move(event), job, std::move(for_others));
}

std::vector<Event> EventLog::Recent(const Caller& caller, uint64_t since) const {
  const MutexLock lock(shared_->mutex);
  return shared_->Since(caller, since);
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

Result<std::shared_ptr<void>> EventLog::Watch(const Caller& caller, std::function<void(const Event&)> callback,
                                              std::optional<uint64_t> since) {
  TIER_CHECK(callback != nullptr, "uid {} watches without a callback", caller.uid);
  const MutexLock lock(shared_->mutex);
  if (auto room = CheckRoomFor(shared_->watchers, caller); !room) return std::unexpected(std::move(room.error()));
  std::vector<Event> earlier = since ? shared_->Since(caller, *since) : std::vector<Event>();
  auto started = Watcher::Start(caller, std::move(callback), std::move(earlier));
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
