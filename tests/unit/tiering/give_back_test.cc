// Memory that goes back to the host: which windows, of whom, and in what order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "daemon/tiering/memory/hand_over.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
constexpr uint64_t kArena = 32 * kMiB;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr base::Duration kPace = milliseconds(1);

class GiveBack : public ::testing::Test {
 protected:
  explicit GiveBack(WorldOptions options = Options()) : world_(std::move(options)) {}
  static WorldOptions Options() {
    WorldOptions options{.windows = {.window_size = kWindow, .arena_max_bytes = kArena}, .device_blocks = 256};
    options.engine.write_behind_start = 1;  // Nothing is written ahead of need.
    options.engine.evict_start = 1;
    return options;
  }
  // The host has memory for so much. Clients return what they are asked for.
  void Press(uint64_t bytes, base::Duration time = milliseconds(500), base::Duration pace = kPace) {
    world_.windows.SetArenaMax(bytes);
    for (const base::TimePoint end = world_.now + time; world_.now < end;) {
      world_.Turn();
      world_.ReturnWindows();
      world_.Advance(pace);
    }
  }
  uint64_t ArenaBytes() const { return world_.windows.arena_bytes(); }
  uint64_t InRam(JobId job) const { return world_.Job(job).ram_bytes; }

  World world_;
};

TEST_F(GiveBack, EmptyWindowsGoFirstAndNothingIsEvicted) {
  const JobId job = world_.OpenJob({.key = "1/job", .uid = 1});
  const SessionId session = world_.OpenSession(job);
  world_.PutEach(session, 1, 6, kWindow);
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) (void)world_.Free(session, tensor);
  const uint64_t before = ArenaBytes();
  Press(before - 3 * kWindow);
  EXPECT_EQ(ArenaBytes(), before - 3 * kWindow);
  EXPECT_EQ(InRam(job), 3 * kWindow);
  EXPECT_EQ(world_.transfers.inflight() + world_.Job(job).swap_out_bytes, 0u);
}

TEST_F(GiveBack, WritesWhatIsDirtyAndGivesNoByteAway) {
  const JobId job = world_.OpenJob({.key = "1/job", .uid = 1});
  const SessionId session = world_.OpenSession(job);
  world_.PutEach(session, 1, 12, kWindow);
  Press(2 * kWindow);
  EXPECT_EQ(ArenaBytes(), 2 * kWindow);
  EXPECT_GE(world_.Job(job).swap_out_bytes, 10 * kWindow);
  world_.windows.SetArenaMax(kArena);
  EXPECT_EQ(world_.CheckEach(session, 1, 12), Code::kOk);
}

TEST_F(GiveBack, LeasedMemoryStaysUntilItIsReleased) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  std::vector<Answer> created;
  for (uint64_t tensor = 1; tensor <= 8; ++tensor) created.push_back(world_.Create(session, tensor, kWindow));
  Press(0, seconds(90), milliseconds(60));  // Longer than any deadline.
  EXPECT_EQ(ArenaBytes(), 8 * kWindow);
  EXPECT_TRUE(world_.sink.ended.empty() && world_.sink.returns.empty());
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) {
    const Answer& each = created[tensor - 1];
    world_.Fill(each.spans, tensor, tensor);
    (void)world_.Release(session, World::LeaseOf(each));
  }
  Press(0);
  EXPECT_EQ(ArenaBytes(), 5 * kWindow);
  world_.windows.SetArenaMax(kArena);
  EXPECT_EQ(world_.CheckEach(session, 1, 3), Code::kOk);
}

TEST_F(GiveBack, TheJobThatBorrowsMostGivesFirst) {
  const JobId large = world_.OpenJob({.key = "1/large", .uid = 1});
  const JobId small = world_.OpenJob({.key = "2/small", .uid = 2, .guarantee_bytes = 4 * kMiB});
  const SessionId large_session = world_.OpenSession(large);
  const SessionId small_session = world_.OpenSession(small);
  world_.PutEach(small_session, 1, 3, kWindow);
  world_.PutEach(large_session, 1, 13, kWindow);
  ASSERT_EQ(InRam(large) + InRam(small), kArena);
  Press(kArena - kWindow);
  EXPECT_EQ(InRam(small), 6 * kMiB - kWindow) << "it holds 2 MiB beyond its guarantee; the other is within its promise";
  Press(kArena - 4 * kWindow);
  EXPECT_EQ(InRam(small), 4 * kMiB);
  EXPECT_EQ(InRam(large), 20 * kMiB) << "a guarantee is kept for longer than an equal part";
  Press(kWindow);
  EXPECT_EQ(InRam(large) + InRam(small), kWindow);
  world_.windows.SetArenaMax(kArena);
  EXPECT_EQ(world_.CheckEach(large_session, 1, 13), Code::kOk);
  EXPECT_EQ(world_.CheckEach(small_session, 1, 3), Code::kOk);
}

TEST_F(GiveBack, NothingGrowsMeanwhileAndARequestIsServedWhenTheHostHasMemoryAgain) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  const Answer lease = world_.Create(session, 1, 8 * kMiB);
  ASSERT_EQ(lease.code, Code::kOk);
  Press(4 * kMiB);
  const uint64_t asked = world_.Send(session, Op::kCreate, {{2, 0, 0, 4 * kMiB}});
  Press(4 * kMiB);
  EXPECT_FALSE(world_.Answered(session, asked));
  EXPECT_EQ(ArenaBytes(), 8 * kMiB);
  Press(kArena, milliseconds(50));
  ASSERT_TRUE(world_.Answered(session, asked));
  EXPECT_EQ(world_.Answered(session, asked)->code, Code::kOk);
}

TEST_F(GiveBack, ARequestThatTheHostLeavesNoMemoryIsRefusedWithTheReason) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  const Answer lease = world_.Create(session, 1, 8 * kMiB);
  Press(4 * kMiB);
  const uint64_t asked = world_.Send(session, Op::kCreate, {{2, 0, 0, 4 * kMiB}});
  Press(4 * kMiB, seconds(61), milliseconds(60));
  ASSERT_TRUE(world_.Answered(session, asked));
  EXPECT_EQ(world_.Answered(session, asked)->code, Code::kNoMemory);
  EXPECT_THAT(world_.Answered(session, asked)->detail, HasSubstr("the host has memory for 4 MiB of it now"));
}

TEST_F(GiveBack, AWindowThatItsClientKeepsIsReplacedByAnother) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  world_.PutEach(session, 1, 4, kWindow);
  const SessionId other = world_.Open({.key = "2/job", .uid = 2});
  world_.PutEach(other, 1, 2, kWindow);
  world_.windows.SetArenaMax(5 * kWindow);
  for (int i = 0; i < 4000 && world_.sink.returns.size() < 2; ++i) {
    world_.Turn();
    world_.Advance(kPace);
  }
  ASSERT_EQ(world_.sink.returns.size(), 2u) << "the first was not returned in two seconds";
  EXPECT_NE(world_.sink.returns[0].first, world_.sink.returns[1].first);
}

TEST_F(GiveBack, ADebtThatNobodyCanPayWakesTheEngineSeldom) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  (void)world_.Create(session, 1, 8 * kMiB);
  Press(0, milliseconds(100));
  const auto next = world_.engine->NextDeadline();
  ASSERT_TRUE(next);
  world_.now = *next;
  world_.Turn();
  EXPECT_GT(*world_.engine->NextDeadline(), world_.now + kHostRetryInterval / 2);
}

class GiveBackInTwoKinds : public GiveBack {
 protected:
  GiveBackInTwoKinds() : GiveBack(HugeOptions()) {}
  static WorldOptions HugeOptions() {
    WorldOptions options = Options();
    options.windows.page_size = kBlockSize;
    return options;
  }
};

TEST_F(GiveBackInTwoKinds, WindowsInHugePagesStay) {
  const SessionId session = world_.Open({.key = "1/job", .uid = 1});
  world_.PutEach(session, 1, 4, kWindow);      // In huge pages.
  world_.PutEach(session, 11, 20, 64 * kKiB);  // In a slot window.
  const uint64_t huge = world_.windows.CountOf(WindowKind::kBlock) * kWindow;
  ASSERT_GT(ArenaBytes(), huge);
  Press(0);
  EXPECT_EQ(ArenaBytes(), huge);
  world_.windows.SetArenaMax(kArena);
  EXPECT_EQ(world_.CheckEach(session, 11, 20), Code::kOk);
}

// As many bytes in a call as are bounded, whatever the debt: the first go while others are still looked for.
TEST(GiveBackOfMuch, GoesInParts) {
  constexpr uint64_t kMuch = 4 * kHostBatchBytes;
  WorldOptions options{.windows = {.window_size = 64 * kMiB, .arena_max_bytes = kMuch, .windows_max = 64},
                       .device_blocks = 8};
  World world(std::move(options));
  const SessionId session = world.Open({.key = "1/job", .uid = 1});
  const Answer lease = world.Create(session, 1, kMuch / 2);
  ASSERT_EQ(lease.code, Code::kOk) << lease.detail;
  (void)world.Release(session, World::LeaseOf(lease));
  (void)world.Free(session, 1);
  for (int i = 0; i < 100; ++i) world.Turn();
  const uint64_t before = world.windows.arena_bytes();
  ASSERT_GE(before, kMuch / 2);
  world.windows.SetArenaMax(0);
  world.Advance(kHandOverInterval);
  world.Turn();
  EXPECT_EQ(world.sink.returns.size(), kHostBatchBytes / (64 * kMiB));
}

}  // namespace
}  // namespace tier::tiering::testing
