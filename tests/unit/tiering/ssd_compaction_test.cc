// Sparse blocks of a device are rewritten where pieces had to be scattered over their holes.
#include <memory>
#include <vector>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using storage::TransferOutcome;

constexpr uint64_t kQuarter = kBlockSize / 4;
constexpr uint32_t kSparse = 5;  // Blocks of which every other page is free.
constexpr uint64_t kFirstSmall = 1000;
constexpr uint64_t kFirstLarge = 10'000;

// Half of the pages of five blocks are free, each by itself.
class SsdCompaction : public ::testing::Test {
 protected:
  void Begin(WorldOptions options, JobOptions job_options = {}, uint32_t flags = 0, uint32_t sparse = kSparse) {
    sparse_ = sparse;
    options.device_blocks = sparse + 2;
    world = std::make_unique<World>(std::move(options));
    flags_ = flags;
    job = world->OpenJob(std::move(job_options));
    session = world->OpenSession(job);
    for (uint32_t i = 0; i < sparse_ * kPagesPerBlock; ++i) world->Put(session, kFirstSmall + i, kPageSize, 1, flags);
    ASSERT_EQ(world->Ask(session, Op::kFlush, {}).code, Code::kOk);
    for (uint32_t i = 1; i < sparse_ * kPagesPerBlock; i += 2) world->Free(session, kFirstSmall + i, flags);
    world->Turns(5);
    for (const uint64_t large : {kFirstLarge, kFirstLarge + 1}) {
      world->Put(session, large, kBlockSize, 1, flags);
      ASSERT_EQ(world->Flush(session, large, flags).code, Code::kOk);
    }
    ASSERT_EQ(world->extents.total().free, sparse_ * kBlockSize / 2);
    ASSERT_EQ(world->extents.free_block_count(0), 0u);
  }
  storage::Extent ExtentOf(uint64_t tensor) const {
    for (const PiecePlace& place : world->engine->NamedPlaces()) {
      if (place.tensor == tensor) return place.extent;
    }
    return {};
  }
  void Pass(base::Duration time) {
    const base::TimePoint end = world->now + time;
    while (world->now < end) {
      world->Turns(3);
      world->Advance(std::chrono::milliseconds(100));
    }
  }
  // Blocks are being cleared when it returns.
  void RunUntilBlocksAreCleared() {
    for (int turn = 0; turn < 1000 && !world->extents.clears(0); ++turn) {
      world->Turn();
      if (!world->extents.clears(0)) world->Advance(std::chrono::milliseconds(1));
    }
  }
  void CheckAll(uint64_t tensors) {
    for (uint64_t tensor = 1; tensor <= tensors; ++tensor) {
      EXPECT_EQ(world->Check(session, tensor, tensor, flags_), Code::kOk) << tensor;
    }
    EXPECT_EQ(world->Check(session, kFirstLarge, 1, flags_), Code::kOk);
    for (uint32_t i = 0; i < sparse_ * kPagesPerBlock; i += 2) {
      ASSERT_EQ(world->Check(session, kFirstSmall + i, 1, flags_), Code::kOk) << i;
    }
    world->engine->CheckInvariants();
  }

  std::unique_ptr<World> world;
  JobId job;
  SessionId session;

 private:
  uint32_t flags_ = 0;
  uint32_t sparse_ = 0;
};

TEST_F(SsdCompaction, WhereAPieceWasScatteredTheNextOneIsNot) {
  Begin({});
  world->PutOnSsd(session, 1, kQuarter, 1);
  EXPECT_TRUE(ExtentOf(1).scattered);
  Pass(std::chrono::seconds(2));
  EXPECT_EQ(world->extents.cleared_blocks(0), 1u);
  EXPECT_EQ(world->extents.free_block_count(0), 1u);
  world->PutOnSsd(session, 2, kQuarter, 2);
  EXPECT_FALSE(ExtentOf(2).scattered);
  CheckAll(2);
}

TEST_F(SsdCompaction, WhatLiesOnlyOnSsdIsReadForIt) {
  Begin(WithArena(4 * kMiB, 2 * kMiB));
  world->PutOnSsd(session, 1, kQuarter, 1);
  const uint64_t read = world->Job(job).swap_in_bytes;
  Pass(std::chrono::seconds(2));
  EXPECT_GE(world->extents.cleared_blocks(0), 1u);
  EXPECT_GT(world->Job(job).swap_in_bytes, read);
  CheckAll(1);
}

TEST_F(SsdCompaction, WhatWasFetchedAheadStaysForItsUse) {
  Begin(WithArena(4 * kMiB, 2 * kMiB));
  world->PutOnSsd(session, 1, kQuarter, 1);
  ASSERT_EQ(world->Ask(session, Op::kDrop, {}).code, Code::kOk);
  const auto in_ram = [&](uint64_t tensor) {
    return world->Ask(session, Op::kStat, {{tensor, 0, 0, 0}}).tensor.ram_bytes;
  };
  world->Send(session, Op::kPrefetch, {{kFirstLarge, 0, 0, 0}, {kFirstLarge + 1, 0, 0, 0}});
  world->Turns(50);
  ASSERT_EQ(in_ram(kFirstLarge), kBlockSize);
  ASSERT_EQ(in_ram(kFirstLarge + 1), kBlockSize);
  Pass(std::chrono::seconds(2));
  EXPECT_EQ(in_ram(kFirstLarge), kBlockSize);
  EXPECT_EQ(in_ram(kFirstLarge + 1), kBlockSize);
}

TEST_F(SsdCompaction, WhatStaysScatteredIsGivenOneRun) {
  Begin({});
  world->PutOnSsd(session, 1, kQuarter, 1);
  world->PutOnSsd(session, 2, kQuarter, 2);
  Pass(std::chrono::seconds(20));
  EXPECT_TRUE(ExtentOf(1).scattered) << "it may be rewritten soon";
  Pass(std::chrono::seconds(45));
  EXPECT_FALSE(ExtentOf(1).scattered);
  EXPECT_FALSE(ExtentOf(2).scattered);
  const uint64_t written = world->Job(job).swap_out_bytes;
  Pass(std::chrono::seconds(90));
  EXPECT_EQ(world->Job(job).swap_out_bytes, written) << "all is in its place";
  EXPECT_FALSE(world->engine->NextDeadline() && *world->engine->NextDeadline() < world->now);
  CheckAll(2);
}

TEST_F(SsdCompaction, APieceOfAWholeBlockIsGivenABlock) {
  Begin({}, {}, 0, 8);
  world->PutOnSsd(session, 1, kBlockSize, 1);
  ASSERT_TRUE(ExtentOf(1).scattered);
  Pass(std::chrono::seconds(65));
  EXPECT_FALSE(ExtentOf(1).scattered);
  CheckAll(1);
}

TEST_F(SsdCompaction, WhatAManifestNamesStays) {
  Begin({.manifests = true}, kNamed, kShared);
  ASSERT_EQ(world->Ask(session, Op::kPersist, {}).code, Code::kOk);
  world->PutOnSsd(session, 1, kQuarter, 1, kShared);
  const uint64_t written = world->Job(job).swap_out_bytes;
  Pass(std::chrono::seconds(120));
  EXPECT_EQ(world->extents.cleared_blocks(0), 0u);
  EXPECT_EQ(world->Job(job).swap_out_bytes, written);
  CheckAll(1);
}

TEST_F(SsdCompaction, APersistMeanwhileEndsIt) {
  Begin({.manifests = true}, kNamed, kShared);
  world->PutOnSsd(session, 1, kQuarter, 1, kShared);
  RunUntilBlocksAreCleared();
  ASSERT_TRUE(world->extents.clears(0));
  ASSERT_EQ(world->Ask(session, Op::kPersist, {}).code, Code::kOk);
  Pass(std::chrono::seconds(60));
  EXPECT_FALSE(world->extents.clears(0));
  CheckAll(1);
}

TEST_F(SsdCompaction, WhatFindsNoOtherRoomTakesABlockThatIsBeingCleared) {
  Begin({});
  world->PutOnSsd(session, 1, kQuarter, 1);
  RunUntilBlocksAreCleared();
  ASSERT_TRUE(world->extents.clears(0));
  uint64_t tensor = 1;
  const auto fill = [&] {
    while (world->extents.total().free >= kBlockSize + kQuarter) {
      ++tensor;
      world->PutOnSsd(session, tensor, kQuarter, tensor);
    }
  };
  fill();
  Pass(std::chrono::seconds(1));
  fill();
  EXPECT_EQ(world->extents.total().free, kBlockSize) << "what is kept for exchange";
  Pass(std::chrono::seconds(60));
  CheckAll(tensor);
}

TEST_F(SsdCompaction, FailedWritesGiveItUpAndLoseNothing) {
  Begin({});
  world->PutOnSsd(session, 1, kQuarter, 1);
  RunUntilBlocksAreCleared();
  ASSERT_TRUE(world->extents.clears(0));
  for (int i = 0; i < 3; ++i) world->transfers.FailNext({.outcome = TransferOutcome::kDeviceError});
  Pass(std::chrono::seconds(60));
  EXPECT_FALSE(world->extents.clears(0));
  CheckAll(1);
}

TEST_F(SsdCompaction, TheEndOfAJobIsNoHindrance) {
  Begin({});
  const SessionId other = world->Open();
  world->PutOnSsd(other, 1, kQuarter, 1);
  RunUntilBlocksAreCleared();
  ASSERT_TRUE(world->extents.clears(0));
  world->EndSession(session);
  Pass(std::chrono::seconds(5));
  EXPECT_FALSE(world->extents.clears(0));
  EXPECT_EQ(world->Check(other, 1, 1), Code::kOk);
  EXPECT_EQ(world->extents.total().live, kQuarter);
  EXPECT_EQ(world->extents.free_block_count(0), kSparse + 1);
}

// A tensor of 300 pages in each block, and a hole beside it that takes no other: nothing can be gained.
TEST_F(SsdCompaction, WhatWouldBeScatteredByItIsNotMoved) {
  constexpr uint64_t kLong = 300 * kPageSize;
  world = std::make_unique<World>(WorldOptions{.device_blocks = 12});
  job = world->OpenJob();
  session = world->OpenSession(job);
  uint64_t tensor = 0;
  const auto put = [&] {
    ++tensor;
    world->PutOnSsd(session, tensor, kLong, tensor);
  };
  while (world->extents.free_block_count(0) != 0) put();
  while (world->extents.total().free >= kBlockSize + kLong) put();
  ASSERT_NE(world->extents.scattered_extents(0), 0u);
  const uint64_t written = world->Job(job).swap_out_bytes;
  Pass(std::chrono::minutes(5));
  EXPECT_LE(world->Job(job).swap_out_bytes, written + 2 * world->extents.total().capacity);
  Pass(std::chrono::minutes(5));
  const uint64_t later = world->Job(job).swap_out_bytes;
  Pass(std::chrono::minutes(10));
  EXPECT_EQ(world->Job(job).swap_out_bytes, later) << "it comes to an end";
  for (uint64_t i = 1; i <= tensor; ++i) EXPECT_EQ(world->Check(session, i, i), Code::kOk) << i;
  world->engine->CheckInvariants();
}

}  // namespace
}  // namespace tier::tiering::testing
