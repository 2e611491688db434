// Gathering: blocks of a tensor that a client wants side by side, as it has few mappings left.
#include <utility>

#include <gtest/gtest.h>

#include "daemon/tiering/memory/gathering.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// One window of so many blocks, which is all that the job may have.
class Gathering : public ::testing::Test {
 protected:
  static WorldOptions ThreeWindows(uint64_t blocks, uint16_t devices) {
    return {.windows = {.window_size = blocks * kPiece, .arena_max_bytes = 3 * blocks * kPiece},
            .transfers = {.device_count = devices},
            .device_blocks = 256};
  }
  explicit Gathering(uint64_t blocks = 64, uint16_t devices = 0) : Gathering(blocks, ThreeWindows(blocks, devices)) {}
  Gathering(uint64_t blocks, WorldOptions options)
      : world(std::move(options)),
        job(world.OpenJob({.limit_bytes = blocks * kPiece})),
        session(world.OpenSession(job)) {}

  // Tensors 1 to `blocks`, one block each, of which every second is then freed.
  void LeaveEverySecondBlock(uint64_t blocks) {
    world.PutEach(session, 1, blocks, kPiece);
    for (uint64_t id = 1; id <= blocks; id += 2) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
    kept = blocks;
  }
  void CheckKept() {
    for (uint64_t id = 2; id <= kept; id += 2) EXPECT_EQ(world.Check(session, id, id), Code::kOk) << id;
  }
  Answer AcquireAsOne(uint64_t tensor, uint32_t flags = 0) {
    return world.Acquire(session, tensor, flags | proto::kFlagContiguous);
  }
  // Wishes for a scattered tensor, and stops while blocks move for it: each copy takes so many turns.
  uint64_t AskWhileBlocksMove(uint32_t turns) {
    LeaveEverySecondBlock(64);
    world.Put(session, kTensor, 8 * kPiece, 7);
    world.copier.SetDelay(turns, turns);
    const uint64_t asked = world.Send(session, Op::kAcquire, {{kTensor, 0, 0, 0}}, proto::kFlagContiguous);
    world.Turns(2);
    EXPECT_NE(world.copier.inflight(), 0U);
    return asked;
  }
  // Mappings that a client needs for one range of addresses.
  static uint32_t RunsOf(const Answer& answer) {
    uint32_t runs = 0;
    const proto::SpanRecord* before = nullptr;
    for (const proto::SpanRecord& span : answer.spans) {
      const bool follows =
          before != nullptr && before->window == span.window && before->offset + before->length == span.offset;
      if (!follows) ++runs;
      before = &span;
    }
    return runs;
  }
  CompactionFigures Figures() {
    return world.engine->Snapshot().compaction[static_cast<size_t>(CompactionCause::kRun)];
  }

  static constexpr uint64_t kTensor = 1000;
  World world;
  JobId job;
  SessionId session;
  uint64_t kept = 0;
};

TEST_F(Gathering, ThePartsOfATailMoveBehindOneAnother) {
  for (uint64_t id = 1; id <= 3; ++id) world.Put(session, id, 257 * kPageSize, id);
  const Answer before = world.Acquire(session, 3);
  EXPECT_EQ(RunsOf(before), 2U);
  world.Release(session, World::LeaseOf(before));
  const Answer after = AcquireAsOne(3);
  ASSERT_EQ(after.code, Code::kOk);
  EXPECT_EQ(RunsOf(after), 1U);
  EXPECT_TRUE(world.Matches(after.spans, 3, 3));
  EXPECT_EQ(Figures().moves, 2U);
  world.Release(session, World::LeaseOf(after));
  EXPECT_EQ(world.Check(session, 3, 3), Code::kOk);
  EXPECT_EQ(world.Free(session, 3).code, Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 1, 2), Code::kOk);
}

TEST_F(Gathering, ScatteredBlocksMoveIntoARunThatIsFree) {
  LeaveEverySecondBlock(32);
  world.Put(session, 500, 30 * kPiece, 500);  // The run of free blocks.
  world.Put(session, kTensor, 8 * kPiece, 7);
  EXPECT_EQ(world.Free(session, 500).code, Code::kOk);
  const Answer before = world.Acquire(session, kTensor);
  EXPECT_GT(RunsOf(before), 4U);
  world.Release(session, World::LeaseOf(before));
  const Answer after = AcquireAsOne(kTensor);
  ASSERT_EQ(after.code, Code::kOk);
  EXPECT_EQ(RunsOf(after), 1U);
  EXPECT_TRUE(world.Matches(after.spans, kTensor, 7));
  EXPECT_EQ(Figures().moves, 8U) << "nothing else had to move";
  world.Release(session, World::LeaseOf(after));
  EXPECT_EQ(RunsOf(world.Acquire(session, kTensor)), 1U) << "it stays so";
  CheckKept();
}

TEST_F(Gathering, WithoutTheWishNothingMoves) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 8 * kPiece, 7);
  EXPECT_EQ(RunsOf(world.Acquire(session, kTensor)), 8U);
  EXPECT_EQ(Figures().moves, 0U);
}

TEST_F(Gathering, ARunIsClearedWhereNoneIsFree) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 8 * kPiece, 7);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(RunsOf(granted), 1U);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
  CheckKept();
}

TEST_F(Gathering, SlotsLeaveTheRunToo) {
  for (uint64_t i = 0; i < 64; ++i) {
    world.Put(session, 2000 + i, kPageSize, 2000 + i);
    world.Put(session, 3000 + i, kPiece - kPageSize, 3000 + i);
  }
  for (uint64_t i = 0; i < 64; ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(world.Free(session, 2000 + i).code, Code::kOk);
    }
    EXPECT_EQ(world.Free(session, 3000 + i).code, Code::kOk);
  }
  world.Put(session, kTensor, 16 * kPiece, 7);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(RunsOf(granted), 1U);
  for (uint64_t i = 1; i < 64; i += 2) EXPECT_EQ(world.Check(session, 2000 + i, 2000 + i), Code::kOk) << i;
}

TEST_F(Gathering, ATailStaysWhereItIs) {
  LeaveEverySecondBlock(32);
  world.Put(session, kTensor, 6 * kPiece + 5000, 7);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_LE(RunsOf(granted), 2U);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
}

TEST_F(Gathering, WhatAnotherLeasesIsGrantedAsItLies) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 8 * kPiece, 7);
  const Answer first = world.Acquire(session, kTensor);
  const base::TimePoint before = world.now;
  const Answer second = AcquireAsOne(kTensor);
  ASSERT_EQ(second.code, Code::kOk);
  EXPECT_LT(world.now - before, std::chrono::seconds(1));
  EXPECT_EQ(RunsOf(second), 8U);
  EXPECT_EQ(Figures().moves, 0U);
}

// Windows are large: there may be a lease in each.
TEST_F(Gathering, ALeaseBesideItKeepsOnlyItsOwnBlock) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 8 * kPiece, 7);
  const Answer beside = world.Acquire(session, 32);
  ASSERT_EQ(beside.code, Code::kOk);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(RunsOf(granted), 1U);
  EXPECT_TRUE(world.Matches(beside.spans, 32, 32));
  CheckKept();
}

TEST_F(Gathering, WhereThereIsNoRoomItIsGrantedAsItLies) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 32 * kPiece, 7);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
}

TEST_F(Gathering, OneThatDoesNotWaitIsGrantedAsItLies) {
  LeaveEverySecondBlock(64);
  world.Put(session, kTensor, 8 * kPiece, 7);
  const Answer granted = AcquireAsOne(kTensor, proto::kFlagNoWait);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(RunsOf(granted), 8U);
}

// What is leased while it moves is not moved, and is granted at once.
TEST_F(Gathering, ALeaseInBetweenIsGrantedAtOnceAndTheWishSoonAfter) {
  const uint64_t asked = AskWhileBlocksMove(3);
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  const uint64_t other = world.Send(session, Op::kAcquire, {{kTensor, 0, 0, 0}});
  world.Turn();
  ASSERT_TRUE(world.Answered(session, other).has_value());
  const Answer granted = world.Wait(session, asked);
  EXPECT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
  CheckKept();
}

TEST_F(Gathering, AtItsDeadlineItIsGrantedAsItLies) {
  const uint64_t asked = AskWhileBlocksMove(100'000);
  world.Advance(world.options.engine.deadline_default + std::chrono::seconds(1));
  world.Turns(2);
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kOk) << world.Answered(session, asked)->detail;
  EXPECT_TRUE(world.Matches(world.Answered(session, asked)->spans, kTensor, 7));
}

TEST_F(Gathering, OthersAreServedMeanwhile) {
  const uint64_t asked = AskWhileBlocksMove(20);
  const uint64_t created = world.Send(session, Op::kCreate, {{kTensor + 1, 0, 0, kPiece}}, proto::kFlagNoWait);
  world.Turn();
  ASSERT_TRUE(world.Answered(session, created).has_value());
  EXPECT_EQ(world.Answered(session, created)->code, Code::kOk) << world.Answered(session, created)->detail;
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  // What is released meanwhile is no reason to begin again.
  for (uint64_t id = 2; id <= 40; id += 2) world.Release(session, World::LeaseOf(world.Acquire(session, id)));
  EXPECT_EQ(RunsOf(world.Wait(session, asked)), 1U);
}

TEST_F(Gathering, AJobThatEndsMeanwhileLeavesNothing) {
  AskWhileBlocksMove(3);
  world.EndSession(session);
  world.Turns(20);
  EXPECT_EQ(world.windows.arena_bytes(), 0U);
}

// Its turns have no work left to plan moves.
class GatheringWithoutWork : public Gathering {
 protected:
  static WorldOptions WithoutWork() {
    WorldOptions options = ThreeWindows(64, 0);
    options.engine.work.compact = 0;
    return options;
  }
  GatheringWithoutWork() : Gathering(64, WithoutWork()) {}
};

TEST_F(GatheringWithoutWork, ARequestOfSeveralIsRefusedAtOnceWhenAnyOfThemIsFreed) {
  LeaveEverySecondBlock(64);
  constexpr uint32_t kShared = proto::kFlagShared;
  world.Put(session, kTensor, 8 * kPiece, 7, kShared);
  world.Put(session, kTensor + 1, kPiece, 8, kShared);
  const SessionId other = world.OpenSession(job);
  const uint64_t asked =
      world.Send(session, Op::kAcquire, {{kTensor, 0, 0, 0}, {kTensor + 1, 0, 0, 0}}, proto::kFlagContiguous | kShared);
  const uint64_t freed = world.Send(other, Op::kFree, {{kTensor + 1, 0, 0, 0}}, kShared);
  EXPECT_EQ(world.Wait(other, freed).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kNotFound);
  EXPECT_EQ(world.Check(session, kTensor, 7, kShared), Code::kOk);
}

class LargeGathering : public Gathering {
 protected:
  LargeGathering() : Gathering(128) {}
};

TEST_F(LargeGathering, ALargeTensorBecomesOneRunForEachGroup) {
  LeaveEverySecondBlock(128);
  const uint64_t blocks = kGroupBlocks + 8;
  world.Put(session, kTensor, blocks * kPiece, 7);
  const Answer before = world.Acquire(session, kTensor);
  ASSERT_EQ(before.code, Code::kOk);
  ASSERT_EQ(RunsOf(before), blocks);
  world.Release(session, World::LeaseOf(before));
  for (uint64_t id = 2; id <= 128; id += 2) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_LE(RunsOf(granted), 2U);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
}

class GatheringFromSsd : public Gathering {
 protected:
  GatheringFromSsd() : Gathering(64, 1) {}
};

// It is read to where there is room, and gathered then.
TEST_F(GatheringFromSsd, WhatHasToBeReadFirstIsGatheredToo) {
  world.PutOnSsd(session, kTensor, 8 * kPiece, 7);
  LeaveEverySecondBlock(64);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);  // What is being written does not move.
  const Answer granted = AcquireAsOne(kTensor);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(RunsOf(granted), 1U);
  EXPECT_TRUE(world.Matches(granted.spans, kTensor, 7));
  CheckKept();
}

}  // namespace
}  // namespace tier::tiering::testing
