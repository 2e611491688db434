// Compaction where pieces lie in as many runs as they may, so that each of these needs a hole of its own length; and
// where what a dead writer left, which is torn, lies in the way.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kFirst = 1000;  // Tensors of four pages; every other one becomes one of three.
constexpr uint64_t kDivided = 100'000;
constexpr uint64_t kShort = 200'000;
constexpr uint64_t kLarge = 300'000;

WorldOptions RamOnly(uint64_t blocks) {
  return {.windows = {.window_size = kBlockSize, .arena_max_bytes = blocks * kBlockSize},
          .transfers = {.device_count = 0}};
}

// The pages that are free lie one by one, beside tensors of three pages; in each block lie runs of four pages of
// tensors that are in four runs already.
TEST(Indivisible, APieceInFourRunsIsNoHindrance) {
  constexpr uint64_t kBlocks = 16;
  constexpr uint64_t kTensors = (kBlocks - 1) * kPagesPerBlock / 4;
  World world(RamOnly(2 * kBlocks));
  const SessionId session = world.Open({.limit_bytes = kBlocks * kBlockSize});
  for (uint64_t i = 0; i < kTensors; ++i) world.Put(session, kFirst + i, 4 * kPageSize, i);
  for (uint64_t i = 0; i < kTensors; i += 16) ASSERT_EQ(world.Free(session, kFirst + i).code, Code::kOk);
  // Where they fit only into the holes. A block that is free is taken first.
  world.Put(session, kLarge, kBlockSize, 1);
  for (uint64_t i = 0; i < kTensors / 64; ++i) world.Put(session, kDivided + i, 16 * kPageSize, i);
  for (uint64_t i = 1; i < kTensors; i += 2) {
    ASSERT_EQ(world.Free(session, kFirst + i).code, Code::kOk);
    world.Put(session, kShort + i, 3 * kPageSize, i);
  }
  const uint64_t free_blocks = kTensors / 2 / kPagesPerBlock;
  ASSERT_GE(free_blocks, 1u);
  for (uint64_t i = 1; i <= free_blocks; ++i) {
    const Answer created = world.Create(session, kLarge + i, kBlockSize);
    ASSERT_EQ(created.code, Code::kOk) << i << " of " << free_blocks << ": " << created.detail;
    EXPECT_EQ(world.Release(session, World::LeaseOf(created)).code, Code::kOk);
  }
  for (uint64_t i = 2; i < kTensors; i += 2) {
    if (i % 16 == 0) continue;
    ASSERT_EQ(world.Check(session, kFirst + i, i), Code::kOk) << i;
  }
  for (uint64_t i = 1; i < kTensors; i += 2) ASSERT_EQ(world.Check(session, kShort + i, i), Code::kOk) << i;
  for (uint64_t i = 0; i < kTensors / 64; ++i) ASSERT_EQ(world.Check(session, kDivided + i, i), Code::kOk) << i;
  world.engine->CheckInvariants();
}

// One torn page in each block, and the rest of it free.
class TornPages : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlocks = 14;
  TornPages() {
    const JobId job = world.OpenJob();
    writer = world.OpenSession(job);
    other = world.OpenSession(job);
    for (uint64_t i = 0; i < kBlocks; ++i) {
      world.Put(other, 100 + i, kPageSize, 100 + i, proto::kFlagShared);
      world.Put(other, 200 + i, kBlockSize - kPageSize, 200 + i, proto::kFlagShared);
    }
    for (uint64_t i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(world.Acquire(writer, 100 + i, proto::kFlagShared | proto::kFlagWrite).code, Code::kOk);
    }
    for (uint64_t i = 0; i < kBlocks; ++i) EXPECT_EQ(world.Free(other, 200 + i, proto::kFlagShared).code, Code::kOk);
    world.EndSession(writer);
    world.Turns(5);
    EXPECT_EQ(world.Check(other, 100, 100, proto::kFlagShared), Code::kTorn);
  }
  void ExpectAllAccepted() {
    for (uint64_t i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(world.Ask(other, Op::kAccept, {{100 + i, 0, 0, 0}}, proto::kFlagShared).code, Code::kOk) << i;
      EXPECT_EQ(world.Check(other, 100 + i, 100 + i, proto::kFlagShared), Code::kOk) << "nothing was written over it";
    }
    world.engine->CheckInvariants();
  }

  World world{RamOnly(16)};
  SessionId writer;
  SessionId other;
};

TEST_F(TornPages, AreMovedForBlocksOfTheirJob) {
  for (uint64_t i = 1; i < kBlocks; ++i) world.Put(other, i, kBlockSize, i);
  ExpectAllAccepted();
}

TEST_F(TornPages, AreMovedOutOfWindowsThatAnotherJobIsOwed) {
  const SessionId owed = world.Open({.uid = 9, .guarantee_bytes = 7 * kBlockSize});
  const uint64_t asked = world.Send(owed, Op::kCreate, {{1, 0, 0, 6 * kBlockSize}});
  world.TurnsReturning(owed, asked, 5000, std::chrono::milliseconds(5));
  ASSERT_TRUE(world.Answered(owed, asked).has_value());
  EXPECT_EQ(world.Answered(owed, asked)->code, Code::kOk) << world.Answered(owed, asked)->detail;
  EXPECT_FALSE(world.sink.ended.contains(static_cast<uint64_t>(other)));
  ExpectAllAccepted();
}

TEST_F(TornPages, AreAcceptedWhileTheyMove) {
  world.copier.SetDelay(3, 3);
  const uint64_t asked = world.Send(other, Op::kCreate, {{1, 0, 0, 3 * kBlockSize}});
  world.Turns(2);
  ASSERT_NE(world.copier.inflight(), 0u);
  ExpectAllAccepted();
  EXPECT_EQ(world.Wait(other, asked).code, Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
