// What the daemon keeps of its events, and who may have it.
#include "daemon/session/event_log.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/check.h"
#include "tests/support/proto/thread_shortage.h"

namespace tier::session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Caller kAlice{.uid = 1000};
const Caller kBob{.uid = 1001};
const Caller kAdmin{.uid = 0, .admin = true};

Job MakeJob(uint32_t uid, const std::string& name) { return {.uid = uid, .name = name, .token = std::string(64, 'a')}; }

std::vector<std::string> MessagesOf(const std::vector<Event>& events) {
  std::vector<std::string> messages;
  for (const Event& event : events) messages.push_back(event.message);
  return messages;
}

// Keeps what it is called with; Wait gives the first n.
class Collector {
 public:
  std::function<void(const Event&)> callback() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      arrived_.notify_all();
    };
  }
  std::vector<Event> Wait(size_t n) {
    std::unique_lock lock(mutex_);
    const bool there = arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return events_.size() >= n; });
    TIER_CHECK(there, "{} of {}", events_.size(), n);
    return {events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(n)};
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
};

TEST(EventLogHistory, KeepsWhatHappenedForThoseWhoMaySeeIt) {
  EventLog log;
  const Job alices = MakeJob(1000, "a");
  Job bobs = MakeJob(1001, "b");
  bobs.token = std::string(64, 'b');
  log.Emit("job_opened", &alices, "one");
  log.Emit("job_opened", &bobs, "two");
  log.Emit("drain", nullptr, "three");
  EXPECT_THAT(MessagesOf(log.Recent(kAdmin, 0)), ElementsAre("one", "two", "three"));
  EXPECT_THAT(MessagesOf(log.Recent(kAlice, 0)), ElementsAre("one", "three"));
  EXPECT_THAT(MessagesOf(log.Recent({.uid = 7, .token = bobs.token}, 0)), ElementsAre("two", "three"));
  EXPECT_THAT(MessagesOf(log.Recent(kAdmin, 2)), ElementsAre("three"));
  EXPECT_TRUE(log.Recent(kAdmin, 3).empty());
  EXPECT_EQ(log.Recent(kBob, 0).back().sequence, 3u) << "one number for all";
}

TEST(EventLogHistory, JobsOfOneNameAreToldApartByTheirUid) {
  EventLog log;
  const Job alices = MakeJob(1000, "train");
  const Job bobs = MakeJob(1001, "train");
  log.Emit("torn", &alices, "one");
  log.Emit("torn", &bobs, "one");
  log.Emit("drain", nullptr, "two");
  const auto events = log.Recent(kAdmin, 0);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].uid, std::optional(1000u));
  EXPECT_EQ(events[1].uid, std::optional(1001u));
  EXPECT_EQ(events[2].uid, std::nullopt);
}

TEST(EventLogHistory, ASentenceForAdministratorsIsToldToNoOther) {
  EventLog log;
  Collector admins;
  Collector alices;
  const auto admin = log.Watch(kAdmin, admins.callback());
  const auto alice = log.Watch(kAlice, alices.callback());
  log.Emit("drain", nullptr, "one");
  log.EmitForAdministrators("config_reload_failed", "tierd.toml:3: no such user: bob", "the reload failed");
  EXPECT_THAT(MessagesOf(admins.Wait(2)), ElementsAre("one", "tierd.toml:3: no such user: bob"));
  EXPECT_THAT(MessagesOf(alices.Wait(2)), ElementsAre("one", "the reload failed"));
  EXPECT_THAT(MessagesOf(log.Recent(kAdmin, 1)), ElementsAre("tierd.toml:3: no such user: bob"));
  const auto since = log.Recent(kAlice, 1);
  EXPECT_THAT(MessagesOf(since), ElementsAre("the reload failed"));
  EXPECT_EQ(since.front().kind, "config_reload_failed");
  EXPECT_EQ(since.front().sequence, 2u);
  Collector back;
  const auto again = log.Watch({.uid = 0}, back.callback(), 1);
  EXPECT_THAT(MessagesOf(back.Wait(1)), ElementsAre("the reload failed")) << "root is a user by control.sock";
}

TEST(EventLogHistory, WhoComesBackLosesNothing) {
  EventLog log;
  Collector first;
  log.Emit("drain", nullptr, "before");
  auto watch = log.Watch(kAdmin, first.callback());
  log.Emit("drain", nullptr, "one");
  const uint64_t last = first.Wait(1).front().sequence;
  watch->reset();
  log.Emit("drain", nullptr, "two");
  log.Emit("drain", nullptr, "three");
  Collector second;
  const auto again = log.Watch(kAdmin, second.callback(), last);
  log.Emit("drain", nullptr, "four");
  EXPECT_THAT(MessagesOf(second.Wait(3)), ElementsAre("two", "three", "four"));
}

TEST(EventLogHistory, SaysWhereEventsAreGone) {
  EventLog log;
  const Job job = MakeJob(1000, "a");
  for (size_t i = 0; i < kEventsKeptMax + 10; ++i) log.Emit("job_opened", &job, std::to_string(i));
  const auto since_nine = log.Recent(kAlice, 9);
  EXPECT_EQ(since_nine.size(), kEventsKeptMax + 1);
  EXPECT_EQ(since_nine.front().kind, kEventsLost);
  EXPECT_EQ(since_nine.front().sequence, 10u) << "the last that is gone: who goes on from there is told no more of it";
  EXPECT_THAT(since_nine.front().message, HasSubstr("the daemon keeps the last 2048"));
  EXPECT_EQ(since_nine[1].message, "10");
  EXPECT_EQ(since_nine.front().unix_time_ms, since_nine[1].unix_time_ms) << "times do not go back";
  EXPECT_EQ(log.Recent(kAlice, 10).size(), kEventsKeptMax) << "nothing behind it is gone";
  EXPECT_EQ(log.Recent(kAlice, 0).size(), kEventsKeptMax) << "all that is kept was asked for";
}

TEST(EventLogHistory, JobsDoNotPushOutWhatIsToldOfTheMachine) {
  EventLog log;
  const Job job = MakeJob(1000, "a");
  log.Emit("device", nullptr, "device 0 is offline");
  for (size_t i = 0; i < 2 * kEventsKeptMax; ++i) log.Emit("job_opened", &job, "again");
  const auto all = log.Recent(kBob, 0);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.front().message, "device 0 is offline");
}

TEST(EventLogHistory, ADaemonThatWasStartedSinceSaysSo) {
  constexpr uint64_t kStart = 1'000'000;
  EventLog log(kStart);
  log.Emit("drain", nullptr, "first of this one");
  for (const uint64_t since : {kStart - 5, kStart + 500}) {  // Of the one before; its clock may have gone ahead.
    const auto events = log.Recent(kAdmin, since);
    ASSERT_EQ(events.size(), 2u) << since;
    EXPECT_EQ(events.front().kind, kEventsLost);
    EXPECT_THAT(events.front().message, HasSubstr("the daemon has been started since"));
    EXPECT_EQ(events.back().sequence, kStart + 1);
  }
  EXPECT_GT(EventLog::SequenceOfNow(), 1'600'000'000'000'000u);
}

TEST(EventLogHistory, ALongMessageIsKeptInPartAndNeverInTheMiddleOfACharacter) {
  EventLog log;
  std::string text(kKeptMessageBytesMax - 1, 'x');
  text += "\u00e4\u00e4";
  log.Emit("drain", nullptr, text);
  EXPECT_EQ(log.Recent(kAdmin, 0).front().message, std::string(kKeptMessageBytesMax - 1, 'x') + " ...");
}

TEST(EventLog, ASlowWatcherLosesItsOwnEventsAndIsToldHowMany) {
  EventLog log;
  std::promise<void> begun;
  std::promise<void> go;
  const auto gate = go.get_future().share();
  Collector slow;
  Collector quick;
  bool first = true;  // Of the watcher's thread.
  const auto watch = log.Watch(kAdmin, [&, gate, collect = slow.callback()](const Event& event) {
    if (std::exchange(first, false)) begun.set_value();
    gate.wait();
    collect(event);
  });
  const auto other = log.Watch(kAdmin, quick.callback());
  log.Emit("drain", nullptr, "on its way");
  begun.get_future().wait();
  constexpr size_t kLost = 5;
  for (size_t i = 0; i < kEventsQueuedMax + kLost; ++i) {
    log.Emit("drain", nullptr, std::to_string(i));
    (void)quick.Wait(i + 2);
  }
  EXPECT_EQ(log.dropped(), kLost);
  go.set_value();
  const Event lost = slow.Wait(kEventsQueuedMax + 2).back();
  EXPECT_EQ(lost.kind, kEventsLost);
  EXPECT_EQ(lost.message, "5 events are missing here: this watcher was too slow");
  EXPECT_EQ(lost.sequence, kEventsQueuedMax + kLost + 1);
  log.Emit("drain", nullptr, "last");
  EXPECT_EQ(slow.Wait(kEventsQueuedMax + 3).back().message, "last");
}

TEST(EventLog, WatchersAreLimitedAndComeAndGo) {
  EventLog log;
  const auto ignore = [](const Event&) {};
  std::vector<std::shared_ptr<void>> watches;
  for (uint32_t i = 0; i < kWatchersMax - kWatchersPerUidMax; ++i) {
    auto watch = log.Watch({.uid = i}, ignore);
    ASSERT_TRUE(watch) << watch.error().message;
    watches.push_back(std::move(*watch));
  }
  const auto refused = log.Watch({.uid = 5000}, ignore);
  ASSERT_FALSE(refused) << "the last places are for administrators";
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_TRUE(log.Watch(kAdmin, ignore));
  EXPECT_EQ(log.watchers(), kWatchersMax - kWatchersPerUidMax);
  watches.pop_back();
  EXPECT_TRUE(log.Watch({.uid = 5000}, ignore));
}

TEST(EventLog, OneUserCannotTakeAllWatchers) {
  EventLog log;
  const auto ignore = [](const Event&) {};
  std::vector<std::shared_ptr<void>> watches;
  for (size_t i = 0; i < kWatchersPerUidMax; ++i) watches.push_back(*log.Watch(kAlice, ignore));
  const auto refused = log.Watch(kAlice, ignore);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the limit is 8"));
  EXPECT_TRUE(log.Watch(kBob, ignore));
}

TEST(EventLog, AWatcherWithoutAThreadIsRefusedAlone) {
  EventLog log;
  Collector first;
  const auto watch = log.Watch(kAdmin, first.callback());
  {
    const tier::testing::ThreadShortage shortage;
    const auto refused = log.Watch(kAlice, [](const Event&) {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoMemory) << refused.error().message;
    EXPECT_EQ(log.watchers(), 1u);
    log.Emit("pressure", nullptr, "told");
    EXPECT_EQ(first.Wait(1).front().message, "told");
  }
  EXPECT_TRUE(log.Watch(kAlice, [](const Event&) {}));
}

TEST(EventLog, NothingIsCalledAfterTheSubscriptionWentAway) {
  EventLog log;
  std::atomic<bool> alive{true};
  for (int round = 0; round < 200; ++round) {
    alive = true;
    auto watch = log.Watch(kAdmin, [&](const Event&) { ASSERT_TRUE(alive.load()); });
    for (int i = 0; i < 5; ++i) log.Emit("drain", nullptr, "x");
    watch->reset();
    alive = false;
  }
}

}  // namespace
}  // namespace tier::session
