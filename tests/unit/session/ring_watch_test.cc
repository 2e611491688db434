// Which rings a pass looks at, by count, and doorbells that are rung without a message.
#include "daemon/session/ring_watch.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::RingClient;
using testing::ScriptedReply;
using testing::SubmittedRequest;

class RingWatchTest : public testing::EngineThreadParts {
 protected:
  // Looks at rings that `passes` passes take, once what went before has come to rest.
  uint64_t PollsOf(int passes) {
    const uint64_t before = table_.watch().polls();
    for (int i = 0; i < passes; ++i) loop_.RunOnce();
    table_.watch().CheckInvariants();
    return table_.watch().polls() - before;
  }
  void Pass(base::Duration time) {
    clock_.now = clock_.now + time;
    loop_.RunOnce();
  }
  // As the loop does before it sleeps; the number of those that are woken for is returned by the poller.
  uint32_t Wakes() { return poller_.Wait(base::Duration{0}); }
};

TEST_F(RingWatchTest, PassLooksAtThoseThatRangAndAtNoneOfAThousandSilentOnes) {
  std::vector<std::unique_ptr<RingClient>> clients;
  for (uint64_t i = 1; i <= 1000; ++i) clients.push_back(Attach(i, "job" + std::to_string(i)));
  EXPECT_EQ(PollsOf(100), 0u);
  ASSERT_TRUE(SendOne(*clients[500]));
  EXPECT_EQ(PollsOf(1), 2u) << "because it rang, and for its message";
  EXPECT_EQ(clients[500]->Receive().size(), 1u);
  EXPECT_EQ(PollsOf(10), 10u) << "it was heard a moment ago";
  Pass(kWatchTime);
  EXPECT_EQ(PollsOf(100), 0u) << "and is silent again";
}

TEST_F(RingWatchTest, WatchedSessionNeedsNoBellAndASilentOneDoes) {
  auto client = Attach(1, "train");
  EXPECT_TRUE(MustRing(*client));
  ASSERT_TRUE(SendOne(*client));
  loop_.RunOnce();
  EXPECT_EQ(client->Receive().size(), 1u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(MustRing(*client));
    ASSERT_TRUE(SendOne(*client));
    Pass(kWatchTime - milliseconds(1));
    ASSERT_EQ(client->Receive().size(), 1u);
  }
  Pass(kWatchTime);
  EXPECT_TRUE(MustRing(*client));
}

TEST_F(RingWatchTest, MessageThatCameBeforeTheClientCouldSeeThatItMustRingIsFound) {
  auto client = Attach(1, "train");
  ASSERT_TRUE(SendOne(*client));
  loop_.RunOnce();
  (void)client->Receive();
  ASSERT_TRUE(SendOne(*client));  // Without a bell.
  clock_.now = clock_.now + kWatchTime;
  table_.watch().EndPass(clock_.now);
  EXPECT_FALSE(MustRing(*client)) << "it is still watched";
  loop_.RunOnce();
  EXPECT_EQ(client->Receive().size(), 1u);
}

TEST_F(RingWatchTest, AnswerThatComesLateFindsWhatItsClientAskedMeanwhile) {
  engine_.hold = true;
  auto client = Attach(1, "train");
  uint32_t sent = 0;
  for (; sent < proto::kRequestsOutstandingMax; ++sent) {
    ASSERT_TRUE(SendOne(*client));
    if (sent % 64 == 63) loop_.RunOnce();
  }
  loop_.RunOnce();
  ASSERT_TRUE(SendOne(*client)) << "for which there is no room yet";
  Pass(kWatchTime);
  Pass(kWatchTime);
  engine_.hold = false;
  loop_.RunOnce();
  loop_.RunOnce();
  EXPECT_EQ(client->Receive().size(), sent + 1);
}

TEST_F(RingWatchTest, RingsWithoutAMessageAreHeardAFewTimesAndThenSeldom) {
  auto ringer = Attach(1, "train");
  uint32_t wakes = 0;
  const base::TimePoint began = clock_.now;
  constexpr int kRings = 20'000;
  for (int i = 0; i < kRings; ++i) {
    Ring(*ringer);
    wakes += Wakes();
    Pass(std::chrono::microseconds(100));
  }
  const base::Duration time = clock_.now - began;
  EXPECT_GE(time, seconds(2));
  EXPECT_GE(table_.watch().mutes(), 10u);
  EXPECT_LE(wakes, kEmptyRingsMax + time / kEmptyRingInterval + 2 * (time / kMuteTime + 1));
}

TEST_F(RingWatchTest, SessionsOfOneUserShareTheLimitOfEmptyRings) {
  std::vector<std::unique_ptr<RingClient>> ringers;
  for (uint64_t i = 1; i <= 50; ++i) ringers.push_back(Attach(i, "job" + std::to_string(i)));
  uint32_t wakes = 0;
  for (int i = 0; i < 20'000; ++i) {
    Ring(*ringers[static_cast<size_t>(i) % ringers.size()]);
    wakes += Wakes();
    loop_.RunOnce();  // 20 us a ring: 400 ms in all.
  }
  EXPECT_LE(wakes, kEmptyRingsMax + 40 + 50 * 5) << "64, one each 10 ms, and one of each session each 100 ms";
}

TEST_F(RingWatchTest, MutedSessionIsServedWhenItsTimeIsOverAndItsNeighbourAtOnce) {
  auto ringer = Attach(1, "train");
  auto neighbour = Attach(2, "other", 1001);
  for (int i = 0; table_.watch().mutes() == 0; ++i) {
    ASSERT_LT(i, 1000);
    Ring(*ringer);
    loop_.RunOnce();
  }
  ASSERT_TRUE(table_.watch().NextUnmute());
  ASSERT_TRUE(SendOne(*ringer));
  ASSERT_TRUE(SendOne(*neighbour));
  loop_.RunOnce();
  EXPECT_EQ(neighbour->Receive().size(), 1u);
  EXPECT_EQ(ringer->Receive().size(), 0u);
  clock_.now = *table_.watch().NextUnmute();
  loop_.RunOnce();
  EXPECT_EQ(ringer->Receive().size(), 1u);
  EXPECT_FALSE(table_.watch().NextUnmute());
}

TEST_F(RingWatchTest, ClientThatRingsForEachMessageIsNeverMuted) {
  auto client = Attach(1, "train");
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(SendOne(*client));
    if (!MustRing(*client)) Ring(*client);  // The engine was asleep: rung, and found by the last look before.
    loop_.RunOnce();
    ASSERT_EQ(client->Receive().size(), 1u) << i;
  }
  EXPECT_EQ(table_.watch().mutes(), 0u);
}

TEST_F(RingWatchTest, ReleasesWithoutABellAreFoundInSlicesBeforeAnybodyWaitsForThem) {
  engine_.answer = [](const SubmittedRequest&) { return ScriptedReply{.spans = std::vector<proto::SpanRecord>(1)}; };
  std::vector<std::unique_ptr<RingClient>> clients;
  for (uint64_t i = 1; i <= 300; ++i) {
    clients.push_back(Attach(i, "job" + std::to_string(i)));
    ASSERT_TRUE(SendOne(*clients.back()));
    Pass(kBellInterval);
    ASSERT_EQ(clients.back()->Receive().size(), 1u) << "a lease";
  }
  Pass(kWatchTime);
  EXPECT_EQ(PollsOf(100), 0u);
  table_.watch().OnPatientSleep();
  const proto::RequestItem item{.value = 1};
  ASSERT_TRUE(clients[250]->Send(proto::Op::kRelease, {&item, 1}));  // Without a bell.
  ASSERT_TRUE(table_.watch().SweepBeforeSleep(clock_.now)) << "the engine may not sleep impatiently now";
  EXPECT_LE(PollsOf(1), kSweptPerPass + 2);
  int passes = 1;
  for (; table_.watch().SweepBeforeSleep(clock_.now); ++passes) EXPECT_LE(PollsOf(1), kSweptPerPass + 2);
  EXPECT_EQ(clients[250]->Receive().size(), 1u);
  EXPECT_EQ(passes, 5) << "300 in slices of 64";
}

TEST_F(RingWatchTest, SweepGoesOnUntilAllThatHoldLeasesWereLookedAt) {
  engine_.answer = [](const SubmittedRequest&) { return ScriptedReply{.spans = std::vector<proto::SpanRecord>(1)}; };
  std::vector<std::unique_ptr<RingClient>> clients;
  for (uint64_t i = 1; i <= 150; ++i) {
    clients.push_back(Attach(i, "job" + std::to_string(i)));
    ASSERT_TRUE(SendOne(*clients.back()));
    Pass(kBellInterval);
    ASSERT_EQ(clients.back()->Receive().size(), 1u) << "a lease";
  }
  Pass(kWatchTime);
  table_.watch().OnPatientSleep();
  EXPECT_FALSE(table_.watch().sweeping());
  const proto::RequestItem item{.value = 1};
  ASSERT_TRUE(clients[149]->Send(proto::Op::kRelease, {&item, 1}));  // Without a bell.
  Pass(kSweepInterval);
  int passes = 1;
  for (; table_.watch().sweeping(); ++passes) loop_.RunOnce();  // The loop does not sleep meanwhile.
  EXPECT_EQ(passes, 3) << "150 in slices of 64";
  EXPECT_EQ(clients[149]->Receive().size(), 1u);
}

}  // namespace
}  // namespace tier::session
