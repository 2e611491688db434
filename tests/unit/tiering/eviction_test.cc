// Which pieces leave RAM for room: no more than what is asked for where that can be, whatever the order in which they
// were used.
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kBlocks = 8;  // That the job may have.
constexpr uint64_t kSlot = 64 * kKiB;
constexpr uint64_t kInBlock = kPiece / kSlot;
constexpr uint64_t kSlots = kBlocks * kInBlock;
constexpr uint64_t kNew = 10'000;  // Ids from here on are those of the tests.

// Tensors that share blocks fill all that the job may have, are on SSD as well, and were used in an order that has
// nothing to do with where they lie.
class EvictionForRoom : public ::testing::Test {
 protected:
  static WorldOptions Options() {
    WorldOptions options{.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece}, .device_blocks = 256};
    options.engine.evict_start = 1;
    options.engine.write_behind_start = 1;
    return options;
  }
  void SetUp() override {
    world.PutOnSsd(session, kNew, kPiece, kNew);
    world.PutOnSsd(session, kNew + 1, 3 * kPiece, kNew + 1);
    world.PutOnSsd(session, kNew + 2, 300 * kPageSize, kNew + 2);
    world.PutEach(session, 1, kSlots, kSlot);
    ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
    UseInAnyOrder();
    ASSERT_EQ(world.Job(job).ram_bytes, kBlocks * kPiece);
  }
  void UseInAnyOrder() {
    std::vector<uint64_t> ids(kSlots);
    std::iota(ids.begin(), ids.end(), 1);
    std::ranges::shuffle(ids, std::mt19937(7));  // NOLINT(cert-msc51-cpp): the same order each time.
    for (const uint64_t id : ids) ASSERT_EQ(world.Check(session, id, id), Code::kOk);
  }
  uint64_t evicted() const { return world.Job(job).evicted_bytes - before_; }
  void Begin() { before_ = world.Job(job).evicted_bytes; }

  World world{Options()};
  JobId job = world.OpenJob({.limit_bytes = kBlocks * kPiece});
  SessionId session = world.OpenSession(job);

 private:
  uint64_t before_ = 0;
};

TEST_F(EvictionForRoom, ABlockCostsTheSlotsOfOneBlock) {
  Begin();
  EXPECT_EQ(world.Check(session, kNew, kNew), Code::kOk);
  EXPECT_LE(evicted(), kPiece);
  EXPECT_EQ(world.CheckEach(session, 1, kSlots), Code::kOk);
}

TEST_F(EvictionForRoom, SeveralBlocksCostAsMany) {
  Begin();
  EXPECT_EQ(world.Check(session, kNew + 1, kNew + 1), Code::kOk);
  EXPECT_LE(evicted(), 3 * kPiece);
}

TEST_F(EvictionForRoom, ALargeSlotCostsABlockAndTheFewThatWentBefore) {
  Begin();
  EXPECT_EQ(world.Check(session, kNew + 2, kNew + 2), Code::kOk);
  EXPECT_LE(evicted(), 3 * 300 * kPageSize);
}

TEST_F(EvictionForRoom, AHintCostsNoMoreThanARequest) {
  Begin();
  ASSERT_EQ(world.Ask(session, Op::kPrefetch, {{kNew, 0, 0, 0}}).code, Code::kOk);
  world.Turns(10);
  EXPECT_LE(evicted(), kPiece);
  EXPECT_EQ(world.Check(session, kNew, kNew), Code::kOk);
  EXPECT_LE(evicted(), kPiece) << "it was there already";
}

// In each block one is leased, so none of them can become free.
TEST_F(EvictionForRoom, NothingGoesForABlockThatCannotCome) {
  std::vector<uint64_t> leases;
  for (uint64_t id = 1; id <= kSlots; id += kInBlock) leases.push_back(World::LeaseOf(world.Acquire(session, id)));
  ASSERT_EQ(leases.size(), kBlocks);
  Begin();
  const uint64_t asked = world.Send(session, Op::kAcquire, {{kNew, 0, 0, 0}});
  world.Turns(50);
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  ASSERT_EQ(world.Ask(session, Op::kPrefetch, {{kNew + 1, 0, 0, 0}}).code, Code::kOk);
  world.Turns(50);
  EXPECT_EQ(evicted(), 0U);
  for (const uint64_t lease : leases) ASSERT_EQ(world.Release(session, lease).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  EXPECT_LE(evicted(), 4 * kPiece) << "with the three that were announced";
}

// In each block one is not on SSD: what is clean beside them goes as far as it is needed, and moves bring it together.
TEST_F(EvictionForRoom, WhatMovesBringTogetherIsNoMoreThanIsNeeded) {
  for (uint64_t id = 1; id <= kSlots; id += kInBlock) ASSERT_EQ(world.Rewrite(session, id, id).code, Code::kOk);
  Begin();
  const uint64_t asked = world.Send(session, Op::kAcquire, {{kNew + 1, 0, 0, 0}});
  world.Turns(50);
  const Answer answer = world.Wait(session, asked);
  EXPECT_EQ(answer.code, Code::kOk) << answer.detail;
  EXPECT_LE(evicted(), 4 * kPiece);
  EXPECT_EQ(world.Release(session, World::LeaseOf(answer)).code, Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 1, kSlots), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
