// What requests that wait are said to wait for, how the time divides, and what is kept of it.
#include <chrono>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint32_t kWrite = proto::kFlagShared | proto::kFlagWrite;

WorldOptions Options() {
  return {.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 16 * kMiB},
          .engine = {.stall_threshold = milliseconds(10)}};
}

uint64_t CountOf(const EngineSnapshot& snapshot, StallCause cause) {
  return snapshot.waiting_for[static_cast<size_t>(cause)];
}
base::Duration TimeOf(const EngineSnapshot& snapshot, StallCause cause) {
  return snapshot.waited_for[static_cast<size_t>(cause)];
}
base::Duration PartOf(const Stall& stall, StallCause cause) { return stall.parts[static_cast<size_t>(cause)]; }

class Stalls : public ::testing::Test {
 protected:
  explicit Stalls(const WorldOptions& options = Options()) : world(options) {}
  StallList List() { return world.engine->Stalls(job, world.now); }
  uint64_t SendAcquire(SessionId session, uint64_t tensor, uint32_t flags) {
    const proto::RequestItem item{.tensor = tensor, .offset = 0, .length = 0, .value = 0};
    return world.Send(session, proto::Op::kAcquire, {item}, flags);
  }
  // The latest of that kind that has ended.
  Stall Last(proto::Op op) {
    for (const NamedStall& named : List().stalls) {
      if (!named.stall.waiting && named.stall.op == op) return named.stall;
    }
    ADD_FAILURE() << "none";
    return {};
  }
  // The time passes in turns.
  void Pass(base::Duration duration) {
    world.Advance(duration);
    world.Turns(2);
  }
  static void CheckSum(const Stall& stall) {
    EXPECT_EQ(std::accumulate(stall.parts.begin(), stall.parts.end(), base::Duration{0}), stall.waited);
  }

  World world;
  const JobId job = world.OpenJob();
  const SessionId one = world.OpenSession(job);
  const SessionId two = world.OpenSession(job);
};

TEST_F(Stalls, AWaitForALeaseIsToldWhileItLastsAndKeptWhenItEnds) {
  world.Put(one, 7, kPiece, 1, kShared);
  const uint64_t lease = World::LeaseOf(world.Acquire(one, 7, kWrite));
  world.Wait(two, world.SendArgument(two, proto::Op::kStep, 41));
  const uint64_t asked = SendAcquire(two, 7, kShared);
  world.Turn();
  EXPECT_THAT(List().stalls, IsEmpty()) << "it has waited for no time yet";
  Pass(milliseconds(300));
  world.Advance(milliseconds(50));
  const StallList now = List();
  ASSERT_THAT(now.stalls, SizeIs(1));
  EXPECT_EQ(now.ended, 0u);
  EXPECT_EQ(now.threshold, milliseconds(10));
  const Stall& waiting = now.stalls[0].stall;
  EXPECT_TRUE(waiting.waiting);
  EXPECT_GE(waiting.waited, milliseconds(350)) << "until now, though the last turn was before";
  EXPECT_LT(waiting.waited, milliseconds(351)) << "turns take microseconds";
  EXPECT_EQ(PartOf(waiting, StallCause::kLease), waiting.waited);

  ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
  ASSERT_EQ(world.Wait(two, asked).code, Code::kOk);
  const StallList then = List();
  ASSERT_THAT(then.stalls, SizeIs(1));
  EXPECT_EQ(then.ended, 1u);
  const Stall& stall = then.stalls[0].stall;
  EXPECT_FALSE(stall.waiting);
  EXPECT_EQ(stall.code, Code::kOk);
  EXPECT_EQ(stall.session, two);
  EXPECT_EQ(stall.op, proto::Op::kAcquire);
  EXPECT_EQ(stall.tensor, 7u);
  EXPECT_EQ(stall.space, 0u);
  EXPECT_EQ(stall.tensor_count, 1u);
  EXPECT_EQ(stall.step, 41u);
  EXPECT_GE(PartOf(stall, StallCause::kLease), milliseconds(350));
  CheckSum(stall);
}

TEST_F(Stalls, WhatIsAnsweredAtOnceIsNone) {
  world.PutEach(one, 1, 3, kPiece);
  EXPECT_EQ(world.CheckEach(one, 1, 3), Code::kOk);
  EXPECT_THAT(List().stalls, IsEmpty());
  EXPECT_EQ(List().ended, 0u);
}

TEST_F(Stalls, ShortOnesAreNotKept) {
  world.Put(one, 7, kPiece, 1, kShared);
  const uint64_t lease = World::LeaseOf(world.Acquire(one, 7, kWrite));
  const uint64_t asked = SendAcquire(two, 7, kShared);
  world.Turn();
  Pass(milliseconds(9));
  EXPECT_THAT(List().stalls, IsEmpty());
  ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
  ASSERT_TRUE(world.Answered(two, asked) || world.Turn());
  EXPECT_EQ(List().ended, 0u);
}

TEST_F(Stalls, ARefusalAtTheDeadlineHasItsCode) {
  world.Put(one, 7, kPiece, 1, kShared);
  (void)world.Acquire(one, 7, kWrite);
  const uint64_t asked = SendAcquire(two, 7, kShared);
  world.Turn();
  Pass(seconds(61));
  ASSERT_TRUE(world.Answered(two, asked));
  ASSERT_THAT(List().stalls, SizeIs(1));
  const Stall stall = List().stalls[0].stall;
  EXPECT_EQ(stall.code, Code::kTimeout);
  EXPECT_GE(stall.waited, seconds(60));
  EXPECT_EQ(PartOf(stall, StallCause::kLease), stall.waited);
}

TEST_F(Stalls, ALackOfRamIsTold) {
  std::vector<uint64_t> leases;
  for (uint64_t tensor = 1; tensor <= 7; ++tensor) {
    world.Put(one, tensor, kPiece, tensor);
    const Answer held = world.Acquire(one, tensor);
    if (held.code == Code::kOk) leases.push_back(World::LeaseOf(held));
  }
  ASSERT_GE(leases.size(), 3u);
  const proto::RequestItem item{.tensor = 50, .offset = 0, .length = 4 * kPiece, .value = 4 * kPiece};
  const uint64_t asked = world.Send(two, proto::Op::kCreate, {item});
  world.Turn();
  Pass(milliseconds(500));
  ASSERT_FALSE(world.Answered(two, asked));
  ASSERT_THAT(List().stalls, SizeIs(1));
  const Stall waiting = List().stalls[0].stall;
  EXPECT_EQ(waiting.op, proto::Op::kCreate);
  EXPECT_EQ(waiting.tensor, 50u);
  EXPECT_EQ(waiting.space, static_cast<uint64_t>(two));
  EXPECT_EQ(PartOf(waiting, StallCause::kRam), waiting.waited) << "leases hold it, but of other tensors";
  const EngineSnapshot snapshot = world.engine->Snapshot();
  EXPECT_EQ(CountOf(snapshot, StallCause::kRam), 1u);
  EXPECT_EQ(CountOf(snapshot, StallCause::kLease), 0u);
  for (const uint64_t lease : leases) ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
  EXPECT_EQ(world.Wait(two, asked).code, Code::kOk);
}

TEST_F(Stalls, TimesOfAllRequestsAreCountedWhileTheyWaitAndNotAfter) {
  world.Put(one, 7, kPiece, 1, kShared);
  const uint64_t lease = World::LeaseOf(world.Acquire(one, 7, kWrite));
  const base::Duration before = TimeOf(world.engine->Snapshot(), StallCause::kLease);
  EXPECT_EQ(before, milliseconds(0));
  const uint64_t asked = SendAcquire(two, 7, kShared);
  const uint64_t also = SendAcquire(two, 7, kShared);
  world.Turn();
  Pass(milliseconds(300));
  const EngineSnapshot during = world.engine->Snapshot();
  EXPECT_EQ(CountOf(during, StallCause::kLease), 2u);
  EXPECT_EQ(CountOf(during, StallCause::kRam), 0u) << "a conflict is no lack of room";
  EXPECT_GE(TimeOf(during, StallCause::kLease), milliseconds(600)) << "both of them";
  EXPECT_LT(TimeOf(during, StallCause::kLease), milliseconds(601)) << "turns take microseconds";
  const base::Duration any = during.any_waited_for[static_cast<size_t>(StallCause::kLease)];
  EXPECT_EQ(any * 2, TimeOf(during, StallCause::kLease)) << "two that wait at once count once";

  ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
  ASSERT_EQ(world.Wait(two, asked).code, Code::kOk);
  ASSERT_EQ(world.Wait(two, also).code, Code::kOk);
  Pass(seconds(5));
  const EngineSnapshot after = world.engine->Snapshot();
  base::Duration parts{0};
  for (const NamedStall& named : List().stalls) parts += PartOf(named.stall, StallCause::kLease);
  EXPECT_EQ(TimeOf(after, StallCause::kLease), parts) << "as each of them was told";
  for (size_t cause = 0; cause < kStallCauses; ++cause) EXPECT_EQ(after.waiting_for[cause], 0u) << cause;
}

TEST_F(Stalls, ARequestOfASessionThatEndsCountsUntilThen) {
  world.Put(one, 7, kPiece, 1, kShared);
  (void)world.Acquire(one, 7, kWrite);
  (void)SendAcquire(two, 7, kShared);
  world.Turn();
  Pass(milliseconds(300));
  world.EndSession(two);
  Pass(seconds(5));
  const EngineSnapshot after = world.engine->Snapshot();
  EXPECT_EQ(CountOf(after, StallCause::kLease), 0u);
  EXPECT_GE(TimeOf(after, StallCause::kLease), milliseconds(300));
}

TEST_F(Stalls, TheListIsBoundedAndNewestFirst) {
  world.Put(one, 7, kPiece, 1, kShared);
  for (size_t round = 1; round <= kStallsKept + 3; ++round) {
    const uint64_t lease = World::LeaseOf(world.Acquire(one, 7, kWrite));
    const uint64_t asked = SendAcquire(two, 7, kShared);
    world.Turn();
    Pass(milliseconds(10 + static_cast<int64_t>(round)));
    ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
    const Answer answer = world.Wait(two, asked);
    ASSERT_EQ(answer.code, Code::kOk);
    ASSERT_EQ(world.Release(two, World::LeaseOf(answer)).code, Code::kOk);
  }
  const StallList list = List();
  EXPECT_EQ(list.ended, kStallsKept + 3);
  ASSERT_THAT(list.stalls, SizeIs(kStallsKept));
  for (size_t i = 1; i < list.stalls.size(); ++i) {
    EXPECT_LT(list.stalls[i].stall.began, list.stalls[i - 1].stall.began);
    EXPECT_LT(list.stalls[i].stall.waited, list.stalls[i - 1].stall.waited);
  }
}

TEST_F(Stalls, TheThresholdMayChange) {
  world.Put(one, 7, kPiece, 1, kShared);
  (void)world.Acquire(one, 7, kWrite);
  (void)SendAcquire(two, 7, kShared);
  world.Turn();
  Pass(milliseconds(100));
  EXPECT_THAT(List().stalls, SizeIs(1));
  EngineOptions options = world.options.engine;
  options.stall_threshold = seconds(1);
  world.engine->SetOptions(options);
  EXPECT_THAT(List().stalls, IsEmpty());
  EXPECT_EQ(List().threshold, seconds(1));
  Pass(seconds(1));
  EXPECT_THAT(List().stalls, SizeIs(1));
}

TEST_F(Stalls, AJobThatIsNotThereHasNone) {
  EXPECT_THAT(world.engine->Stalls(JobId{4711}, world.now).stalls, IsEmpty());
}

// A turn has work for one or two of those that could go on.
class LittleWork : public Stalls {
 protected:
  LittleWork()
      : Stalls([] {
          WorldOptions options = Options();
          options.engine.work.share = options.engine.work.look = 1;
          return options;
        }()) {}
};

TEST_F(LittleWork, AllThatATurnDoesNotReachWaitForItsWork) {
  constexpr size_t kRequests = 6;
  world.Put(one, 7, kPiece, 1, kShared);
  const uint64_t lease = World::LeaseOf(world.Acquire(one, 7, kWrite));
  std::vector<uint64_t> asked;
  for (size_t i = 0; i < kRequests; ++i) asked.push_back(SendAcquire(two, 7, kShared));
  world.Turns(2 * kRequests);
  Pass(milliseconds(100));
  ASSERT_EQ(world.Release(one, lease).code, Code::kOk);
  for (size_t turn = 0; turn < 2 * kRequests; ++turn) {
    world.Advance(milliseconds(20));
    world.Turn();
  }
  size_t late = 0;
  for (const uint64_t request : asked) {
    ASSERT_TRUE(world.Answered(two, request));
    EXPECT_EQ(world.Answered(two, request)->code, Code::kOk);
  }
  ASSERT_THAT(List().stalls, SizeIs(kRequests));
  for (const NamedStall& named : List().stalls) {
    EXPECT_GE(PartOf(named.stall, StallCause::kLease), milliseconds(100)) << "until it could go on";
    EXPECT_LT(PartOf(named.stall, StallCause::kLease), milliseconds(101)) << "turns take microseconds";
    if (PartOf(named.stall, StallCause::kBudget) != milliseconds(0)) ++late;
    CheckSum(named.stall);
  }
  EXPECT_GE(late, 3u) << "also those that stood behind the first one";
}

// Reads that end some turns after they began.
class SlowReads : public Stalls {
 protected:
  SlowReads()
      : Stalls([] {
          WorldOptions options = Options();
          options.transfers.delay_turns_min = options.transfers.delay_turns_max = 4;
          return options;
        }()) {}
};

TEST_F(SlowReads, AReadIsTold) {
  world.PutOnSsd(one, 7, 2 * kPiece);
  const uint64_t asked = SendAcquire(one, 7, 0);
  world.Turn();
  for (int turn = 0; turn < 3 && !world.Answered(one, asked); ++turn) {
    world.Advance(milliseconds(20));
    world.Turn();
  }
  ASSERT_EQ(world.Wait(one, asked).code, Code::kOk);
  const Stall stall = Last(proto::Op::kAcquire);
  EXPECT_EQ(stall.tensor, 7u);
  EXPECT_GE(PartOf(stall, StallCause::kSsdRead), milliseconds(40));
  EXPECT_EQ(PartOf(stall, StallCause::kLease), milliseconds(0));
  CheckSum(stall);
}

TEST_F(SlowReads, AFlushWaitsForItsWrites) {
  world.Put(one, 7, 2 * kPiece);
  const proto::RequestItem item{.tensor = 7, .offset = 0, .length = 0, .value = 0};
  const uint64_t asked = world.Send(one, proto::Op::kFlush, {item});
  world.Turn();
  for (int turn = 0; turn < 3 && !world.Answered(one, asked); ++turn) {
    world.Advance(milliseconds(20));
    world.Turn();
  }
  ASSERT_EQ(world.Wait(one, asked).code, Code::kOk);
  const Stall stall = Last(proto::Op::kFlush);
  EXPECT_GE(PartOf(stall, StallCause::kSsdWrite), milliseconds(40));
}

}  // namespace
}  // namespace tier::tiering::testing
