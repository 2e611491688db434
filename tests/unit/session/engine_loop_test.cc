// The engine thread: what wakes it, when it sleeps, what it does between.
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/engine_loop.h"
#include "daemon/session/spin_policy.h"
#include "tests/support/session/engine_thread_parts.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using proto::Op;
using proto::RequestItem;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::DataClient;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::MakeHello;
using testing::ManualClock;
using testing::SessionWorld;

using EngineLoopTest = testing::EngineThreadParts;

// Every look finds that another thread had the processor. Any thread.
class LosingClock final : public base::Clock {
 public:
  base::TimePoint Now() const override { return {kProcessorLost * ++looks_}; }

 private:
  mutable std::atomic<int64_t> looks_{0};
};

TEST_F(EngineLoopTest, OnePassTakesRequestsTurnsAndAnswers) {
  auto client = Attach(1, "train");
  EXPECT_FALSE(loop_.RunOnce());
  ASSERT_TRUE(SendOne(*client));
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_EQ(client->Receive().size(), 1u);
  EXPECT_FALSE(loop_.RunOnce());
}

TEST_F(EngineLoopTest, TheEngineLearnsWhereAClientIs) {
  auto region = MakeSessionRegion(1, tiering::SessionId{7}).value();
  AttachRequest request = MakeRequest(7, 1000, "train", std::move(region.mapping));
  request.numa_node = 1;
  ASSERT_TRUE(AttachNow(table_, std::move(request)));
  EXPECT_EQ(engine_.nodes, (std::map<uint64_t, int>{{7, 1}}));
}

TEST_F(EngineLoopTest, OneUserLeavesAnEighthOfTheSessionsToOthers) {
  for (const bool one_user : {false, true}) {
    FakeEngine engine;
    JobRegistry registry({}, tokens_);
    JobService job_service(engine, registry, events_);
    SessionTable table({.sessions_max = 8, .one_user = one_user}, poller_, windows_);
    engine.Connect(table);
    table.Connect(job_service, notices_);
    uint64_t session = 0;
    const auto attach = [&](uint32_t uid) {
      auto region = MakeSessionRegion(1, static_cast<tiering::SessionId>(++session)).value();
      const std::string job = "job" + std::to_string(session);
      const auto attached = AttachNow(table, MakeRequest(session, uid, job, std::move(region.mapping)));
      return attached ? std::string() : attached.error().message;
    };
    for (int i = 0; i < 7; ++i) EXPECT_EQ(attach(1000), "");
    EXPECT_EQ(attach(1000).empty(), one_user);
    if (one_user) continue;
    EXPECT_EQ(attach(1001), "");
    EXPECT_THAT(attach(1002), HasSubstr("8 sessions are attached, 7 of them of uid 1000"));
    table.Detach(tiering::SessionId{1}, "gone");
    EXPECT_EQ(attach(1000), "") << "the place of the one that left";
  }
}

TEST_F(EngineLoopTest, RunsWhatOtherThreadsPost) {
  int ran = 0;
  ASSERT_TRUE(mailbox_.TryPost([&] { ++ran; }));
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_EQ(ran, 1);
}

// A post whose closure a pass ran before the post had written the eventfd.
TEST_F(EngineLoopTest, AWakeUpThatComesBehindItsClosureWakesOnce) {
  std::optional<base::Duration> longest;
  ASSERT_EQ(::eventfd_write(mailbox_.wake_fd(), 1), 0);
  ASSERT_TRUE(loop_.StartSleep(&longest));
  EXPECT_EQ(poller_.Wait(base::Duration{0}), 1u);
  loop_.EndSleep();
  EXPECT_FALSE(loop_.RunOnce());
  EXPECT_EQ(poller_.Wait(base::Duration{0}), 0u);
}

TEST_F(EngineLoopTest, WhatComesBehindAReleaseThatGoesOnWaitsForIt) {
  auto client = Attach(1, "train");
  engine_.releasing = true;
  ASSERT_TRUE(SendOne(*client));
  loop_.RunOnce();
  EXPECT_TRUE(client->Receive().empty());
  engine_.releasing = false;
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_EQ(client->Receive().size(), 1u);
}

TEST_F(EngineLoopTest, NoSessionStarvesAnother) {
  auto busy = Attach(1, "busy");
  auto quiet = Attach(2, "quiet");
  while (SendOne(*busy)) {
  }
  ASSERT_TRUE(SendOne(*quiet));
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_EQ(quiet->Receive().size(), 1u);
  EXPECT_EQ(busy->Receive().size(), kMessagesPerTurnMax);
}

TEST_F(EngineLoopTest, JobThatNobodyAttachesToIsClosedInTime) {
  ASSERT_TRUE(job_service_.Open(1000, {.name = "train"}, std::nullopt, clock_.now));
  loop_.RunOnce();
  EXPECT_EQ(engine_.jobs.size(), 1u);
  clock_.now = clock_.now + kUnattachedJobLifetime;
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_TRUE(engine_.jobs.empty());
  EXPECT_TRUE(registry_.jobs().empty());
}

TEST_F(EngineLoopTest, ClosingAJobEndsItsSessionsBeforeTheirNextRequest) {
  auto client = Attach(1, "train");
  ASSERT_TRUE(SendOne(*client));
  job_service_.Close(tiering::JobId{1}, "closed by test", false);
  // The fake aborts if a request of a session it has ended reaches it.
  engine_.Turn(clock_.now);
  loop_.RunOnce();
  EXPECT_EQ(notices_.ended, std::vector<uint64_t>{1});
  EXPECT_EQ(table_.size(), 0u);
}

// The process of one that is ended by force goes on, and may keep what it maps: the engine watches that.
TEST_F(EngineLoopTest, TheEngineHearsWhichSessionsAreEndedByForce) {
  const auto broken = Attach(1, "train");
  const auto leaving = Attach(2, "other");
  table_.End(tiering::SessionId{1}, Code::kRevoked, "its ring is broken");
  table_.Detach(tiering::SessionId{2}, "it said goodbye");
  EXPECT_EQ(engine_.end_codes.at(1), Code::kRevoked);
  EXPECT_EQ(engine_.end_codes.at(2), Code::kDisconnected);
}

TEST_F(EngineLoopTest, BacklogIsTriedAgainWithoutABell) {
  engine_.answer = [](const testing::SubmittedRequest&) {
    return testing::ScriptedReply{.spans = std::vector<proto::SpanRecord>(8000)};
  };
  auto client = Attach(1, "train");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(SendOne(*client));
  loop_.RunOnce();
  EXPECT_TRUE(table_.backlogged());
  EXPECT_EQ(client->Receive().size(), 2u);
  loop_.RunOnce();
  EXPECT_EQ(client->Receive().size(), 2u);
  loop_.RunOnce();
  EXPECT_FALSE(table_.backlogged());
}

TEST_F(EngineLoopTest, ReplyAndEndOfASessionInOneTurnDoNotMeet) {
  auto client = Attach(1, "train");
  ASSERT_TRUE(SendOne(*client));
  engine_.EndInTurn(tiering::SessionId{1}, Code::kRevoked, "gone");
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_TRUE(engine_.jobs.empty());
}

TEST(EngineLoopThread, SleepsWhenIdleAndWakesForABell) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  while (!client.engine_sleeping()) std::this_thread::yield();
  const uint64_t passes = world.loop().passes();
  EXPECT_LE(world.loop().passes(), passes + 1) << "asleep";
  const RequestItem item{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
  client.Ring();
  EXPECT_EQ(client.WaitForCompletions(1).size(), 1u);
}

TEST(EngineLoopThread, ReleasesThatCanWaitAreTakenWithoutABell) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  world.OnEngine([&] {
    world.engine.answer = [](const testing::SubmittedRequest&) {
      return testing::ScriptedReply{.spans = std::vector<proto::SpanRecord>(1)};
    };
    world.engine.releases_can_wait = true;
  });
  const RequestItem range{.tensor = 1};
  ASSERT_TRUE(client.ring().Send(Op::kAcquire, {&range, 1}));
  client.Ring();
  ASSERT_EQ(client.WaitForCompletions(1).size(), 1u);
  while (client.ring().request_control().consumer_waiting == 0) std::this_thread::yield();  // Not looked at any more.
  while (client.engine_sleeping() != proto::kSleepingPatiently) std::this_thread::yield();
  const RequestItem lease{.value = 1};
  ASSERT_TRUE(client.ring().Send(Op::kRelease, {&lease, 1}));
  EXPECT_EQ(client.WaitForCompletions(1).size(), 1u) << "the engine looks by itself";
}

TEST(EngineLoopThread, NoBellIsLostInFiveThousandRaces) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const RequestItem item{.tensor = 1};
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
    client.Ring();
    ASSERT_EQ(client.WaitForCompletions(1).size(), 1u);
  }
}

TEST(EngineLoopThread, SpinningEngineNeedsABellOnlyWhenItSaysThatItSleeps) {
  SessionWorld world({.spin = SpinMode::kAlways});  // It sleeps now and then where this test wants its processor.
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const RequestItem item{.tensor = 1};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
    client.Ring();
    ASSERT_EQ(client.WaitForCompletions(1).size(), 1u) << "a message without a bell was not seen";
  }
}

TEST(EngineLoopThread, SpinningEngineThatKeepsItsProcessorNeverSleeps) {
  const ManualClock still;  // Nothing is ever lost.
  SessionWorld world({.spin = SpinMode::kAlways, .clock = &still});
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const RequestItem item{.tensor = 1};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.ring().Send(Op::kFree, {&item, 1}));
    client.Ring();  // If it was silent for a while.
    ASSERT_EQ(client.WaitForCompletions(1).size(), 1u) << "a message without a bell was not seen";
  }
  EXPECT_EQ(world.loop().sleeps(), 0u);
  EXPECT_EQ(world.loop().spin_pauses(), 0u);
}

TEST(EngineLoopThread, SpinsThatLostTheProcessorAreCounted) {
  const LosingClock clock;
  SessionWorld world({.spin = SpinMode::kAlways, .clock = &clock});
  while (world.loop().spin_pauses() == 0) std::this_thread::yield();
  EXPECT_GE(world.control().Describe()->spin_pauses, 1u);
}

TEST(Poller, CallsSourcesUntilTheyAreCleared) {
  Poller poller;
  const proto::FileDescriptor event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  int calls = 0;
  std::function<void()> on_ready = [&] {
    if (++calls < 3) return;
    uint64_t value = 0;
    (void)!::read(event.get(), &value, sizeof(value));
  };
  ASSERT_TRUE(poller.AddSource(event.get(), &on_ready));
  for (int i = 0; i < 5; ++i) poller.Wait(base::Duration{0});
  EXPECT_EQ(calls, 3);
  poller.Remove(event.get());
}

TEST(Poller, DoorbellWakesOncePerRingWithoutBeingRead) {
  Poller poller;
  const proto::FileDescriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(poller.AddDoorbell(bell.get(), 7));
  EXPECT_EQ(poller.Wait(base::Duration{0}), 0u);
  for (int i = 0; i < 3; ++i) {
    const uint64_t one = 1;
    ASSERT_EQ(::write(bell.get(), &one, sizeof(one)), 8);
    EXPECT_EQ(poller.Wait(base::Duration{0}), 1u);
    EXPECT_EQ(poller.Wait(base::Duration{0}), 0u);
    EXPECT_EQ(poller.rung(), std::vector<uint64_t>{7});
    poller.ClearRung();
  }
}

TEST(Poller, DoorbellThatIsNotHeardWakesOnceItIsAgain) {
  Poller poller;
  const proto::FileDescriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(poller.AddDoorbell(bell.get(), 7));
  poller.SetDoorbell(bell.get(), 7, false);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(::eventfd_write(bell.get(), 1), 0);
    EXPECT_EQ(poller.Wait(base::Duration{0}), 0u);
  }
  poller.SetDoorbell(bell.get(), 7, true);
  EXPECT_EQ(poller.Wait(base::Duration{0}), 1u);
  EXPECT_EQ(poller.Wait(base::Duration{0}), 0u);
}

TEST(Poller, BadDescriptorIsAnError) {
  Poller poller;
  EXPECT_FALSE(poller.AddDoorbell(-1, 1));
}

}  // namespace
}  // namespace tier::session
