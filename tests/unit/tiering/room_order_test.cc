// Who takes room first: requests of one job that are short of memory. And what leaves it first.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// An arena of four blocks. One session leases three of them, and asks for the fourth after another asked for two.
class FourBlocks : public ::testing::Test {
 protected:
  FourBlocks() : world(WithArena(4 * kPiece, 4 * kPiece)), job(world.OpenJob()) {
    for (uint64_t id = 1; id <= 3; ++id) {
      const Answer created = world.Create(holder, id, kPiece);
      EXPECT_EQ(created.code, Code::kOk);
      leases.push_back(World::LeaseOf(created));
    }
  }
  void OtherAsks() {
    asked_first = world.Send(other, Op::kCreate, {{10, 0, 0, 2 * kPiece}});
    world.Turns(4);
  }
  World world;
  JobId job;
  SessionId holder = world.OpenSession(job);
  SessionId other = world.OpenSession(job);
  std::vector<uint64_t> leases;
  uint64_t asked_first = 0;
};

TEST_F(FourBlocks, ASessionThatHoldsLeasesPassesOneThatHoldsNone) {
  OtherAsks();
  const uint64_t asked = world.Send(holder, Op::kCreate, {{4, 0, 0, kPiece}});
  world.Turns(4);
  ASSERT_TRUE(world.Answered(holder, asked).has_value()) << "a block is free";
  EXPECT_EQ(world.Answered(holder, asked)->code, Code::kOk);
  leases.push_back(World::LeaseOf(*world.Answered(holder, asked)));
  EXPECT_FALSE(world.Answered(other, asked_first).has_value());
  for (const uint64_t lease : leases) world.Release(holder, lease);
  EXPECT_EQ(world.Wait(other, asked_first).code, Code::kOk) << "it is served when the leases end";
}

TEST_F(FourBlocks, NothingPassesARequestThatHasWaitedForHalfOfItsTime) {
  OtherAsks();
  world.Advance(std::chrono::seconds(31));
  world.Turns(2);
  const uint64_t asked = world.Send(holder, Op::kCreate, {{4, 0, 0, kPiece}});
  world.Turns(4);
  EXPECT_FALSE(world.Answered(holder, asked).has_value());
  world.Release(holder, leases.back());
  world.Turns(4);
  ASSERT_TRUE(world.Answered(other, asked_first).has_value());
  EXPECT_EQ(world.Answered(other, asked_first)->code, Code::kOk);
}

TEST_F(FourBlocks, ARequestHoldsNothingBeforeThereIsRoomForAllOfIt) {
  OtherAsks();
  EXPECT_EQ(world.Job(job).ram_bytes, 3 * kPiece) << "the block that is free stays free";
}

// Each takes the free block, finds no second one, and gives it back: none of them gains by that.
TEST_F(FourBlocks, RequestsThatAreShortDoNotWakeEachOther) {
  OtherAsks();
  const uint64_t asked = world.Send(holder, Op::kCreate, {{4, 0, 0, 2 * kPiece}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(holder, asked).has_value() || world.Answered(other, asked_first).has_value());
  EXPECT_FALSE(world.Turn()) << "the engine has nothing to do";
  ASSERT_TRUE(world.engine->NextDeadline().has_value());
  EXPECT_GT(*world.engine->NextDeadline(), world.now);
}

// The last block is under a lease of a third session when the holder asks for it.
TEST_F(FourBlocks, ASessionThatHoldsLeasesAndWasShortPassesToo) {
  const SessionId third = world.OpenSession(job);
  const Answer last = world.Create(third, 4, kPiece);
  ASSERT_EQ(last.code, Code::kOk);
  OtherAsks();
  const uint64_t asked = world.Send(holder, Op::kCreate, {{5, 0, 0, kPiece}});
  world.Turns(4);
  ASSERT_FALSE(world.Answered(holder, asked).has_value()) << "no block is free";
  world.EndSession(third);  // Its block is free at once: no request has to evict anything for it.
  world.Turns(4);
  ASSERT_TRUE(world.Answered(holder, asked).has_value()) << "it may pass the one that holds no lease";
  EXPECT_EQ(world.Answered(holder, asked)->code, Code::kOk);
  EXPECT_FALSE(world.Answered(other, asked_first).has_value());
}

// Who waits behind others for room, and is given what it lacks by somebody else's request, needs no room any more.
TEST(RoomOrder, WhatAnotherWasGivenRoomForIsNotWaitedForBehindTheQueue) {
  constexpr uint64_t kBlock = kBlockSize;
  constexpr uint32_t kShared = proto::kFlagShared;
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId holder = world.OpenSession(job);
  const SessionId large = world.OpenSession(job);
  const SessionId waiting = world.OpenSession(job);
  world.PutOnSsd(holder, 1, kBlock, 1, kShared);
  world.PutOnSsd(holder, 2, kBlock, 2, kShared);
  world.Put(holder, 3, kBlock, 3, kShared);
  ASSERT_EQ(world.Acquire(holder, 3, kShared).code, Code::kOk);
  world.Send(large, Op::kCreate, {{4, 0, 0, 4 * kBlock}});  // Waits for room, before all others.
  world.Turn();
  const uint32_t overwrite = kShared | proto::kFlagWrite | proto::kFlagDiscard;
  const uint64_t asked = world.Send(waiting, Op::kAcquire, {{1, 0, 0, 0}}, overwrite);
  world.Turn();
  world.transfers.SetDelay(50, 50);
  // It holds a lease, so it may pass: all of the one tensor, and a part of the other, which is read first.
  const uint64_t both = world.Send(holder, Op::kAcquire, {{1, 0, 0, 0}, {2, 0, kBlock / 2, 0}}, overwrite);
  world.Turns(5);
  EXPECT_FALSE(world.Answered(holder, both).has_value()) << "the read is under way";
  ASSERT_TRUE(world.Answered(waiting, asked).has_value());
  EXPECT_EQ(world.Answered(waiting, asked)->code, Code::kOk);
}

// Four blocks of an arena that holds four, all on SSD too, used in the order of their ids.
class FourClean : public ::testing::Test {
 protected:
  FourClean()
      : world({.windows = {.window_size = 4 * kPiece, .arena_max_bytes = 4 * kPiece}, .engine = {.evict_start = 1.0}}) {
    world.PutEach(session, 1, 4, kPiece);
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(world.Flush(session, id).code, Code::kOk);
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
  }
  uint64_t Read(uint64_t id) { return World::LeaseOf(world.Ask(session, Op::kAcquire, {{id, 0, 0, 0}})); }
  bool InRam(uint64_t id) { return world.Ask(session, Op::kStat, {{id, 0, 0, 0}}).tensor.ram_bytes != 0; }

  World world;
  SessionId session = world.Open();
};

TEST_F(FourClean, WhatIsReleasedToBeEvictedFirstMakesRoomBeforeWhatWasUsedEarlier) {
  for (const uint64_t id : {4u, 3u}) {
    EXPECT_EQ(world.Release(session, Read(id), proto::kFlagEvictFirst).code, Code::kOk);
  }
  world.Put(session, 5, kPiece, 5);
  EXPECT_FALSE(InRam(4)) << "its lease ended first";
  EXPECT_TRUE(InRam(1) && InRam(2) && InRam(3));
  world.Put(session, 6, kPiece, 6);
  EXPECT_FALSE(InRam(3));
  EXPECT_TRUE(InRam(1) && InRam(2));
  EXPECT_EQ(world.CheckEach(session, 3, 4), Code::kOk) << "nothing is lost by it";
}

TEST_F(FourClean, AnotherLeaseKeepsItInUse) {
  const uint64_t first = Read(4);
  const uint64_t second = Read(4);
  EXPECT_EQ(world.Release(session, first, proto::kFlagEvictFirst).code, Code::kOk);
  EXPECT_EQ(world.Release(session, second).code, Code::kOk);
  world.Put(session, 5, kPiece, 5);
  EXPECT_TRUE(InRam(4));
  EXPECT_FALSE(InRam(1));
}

TEST(WriteOrder, WhatIsReleasedToBeEvictedFirstIsWrittenBehindFirst) {
  World world(
      {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .engine = {.write_behind_start = 0.5}});
  const SessionId session = world.Open();
  world.PutEach(session, 1, 3, kPiece);
  const Answer created = world.Create(session, 4, kPiece);
  EXPECT_EQ(world.Release(session, World::LeaseOf(created), proto::kFlagEvictFirst).code, Code::kOk);
  world.Put(session, 5, kPiece, 5);
  world.Turns(5);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, kPiece);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{4, 0, 0, 0}}).tensor.ssd_bytes, kPiece);
}

}  // namespace
}  // namespace tier::tiering::testing
