// Extents are write-once: an extent is not written again in the turn that frees it, and nothing is refused for that.
// The world compares each transfer with the engine's tables and the manifests (transfer_check.h).
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// One session, and a device that holds two pieces.
class WriteOnce : public ::testing::Test {
 protected:
  WriteOnce() : world({.device_blocks = 3}), session(world.Open()) {}

  // Seals what is under the lease, without a turn.
  uint64_t Seal(const Answer& lease) { return world.Send(session, Op::kRelease, {{0, 0, 0, World::LeaseOf(lease)}}); }
  uint64_t StartFlush(uint64_t tensor) { return world.Send(session, Op::kFlush, {{tensor, 0, 0, 0}}); }
  Answer OpenAndFill(uint64_t tensor, uint64_t seed) {
    const Answer lease = world.Acquire(session, tensor, proto::kFlagWrite);
    EXPECT_EQ(lease.code, Code::kOk) << lease.detail;
    world.Fill(lease.spans, tensor, seed);
    return lease;
  }

  World world;
  SessionId session;
};

TEST_F(WriteOnce, AnExtentIsReusedInTheTurnAfterTheOneThatFreesIt) {
  world.PutOnSsd(session, 1, 2 * kPiece, 1);
  const Answer lease = OpenAndFill(1, 2);
  Seal(lease);
  EXPECT_EQ(world.extents.total().pending, 2 * kPiece);
  const uint64_t flushing = StartFlush(1);
  EXPECT_EQ(world.transfers.moves().size(), 1u) << "two blocks belong to the old bytes until the turn ends";
  world.Turns(4);
  ASSERT_TRUE(world.Answered(session, flushing).has_value())
      << "it waits for the end of the turn, not for a retry's time";
  EXPECT_EQ(world.Answered(session, flushing)->code, Code::kOk);
  EXPECT_EQ(world.extents.total().pending, 0u);
  EXPECT_EQ(world.Drop(session, 1).value, 2 * kPiece);
  EXPECT_EQ(world.Check(session, 1, 2), Code::kOk);
}

TEST_F(WriteOnce, WhatAFreedTensorLeavesGoesToTheNextOneInTheNextTurn) {
  world.PutOnSsd(session, 1, 2 * kPiece);
  world.Put(session, 2, 2 * kPiece);
  const uint64_t freeing = world.Send(session, Op::kFree, {{1, 0, 0, 0}});
  const uint64_t flushing = StartFlush(2);
  EXPECT_EQ(world.transfers.moves().size(), 1u);
  world.Turns(4);
  EXPECT_EQ(world.Answered(session, freeing)->code, Code::kOk);
  ASSERT_TRUE(world.Answered(session, flushing).has_value());
  EXPECT_EQ(world.Answered(session, flushing)->code, Code::kOk);
}

TEST(WriteOncePersist, PersistCountsWhatTheEndOfTheTurnFrees) {
  World named({.device_blocks = 3, .manifests = true});
  const JobId job = named.OpenJob({.key = "0/named", .named = true});
  const SessionId writer = named.OpenSession(job);
  named.PutOnSsd(writer, 1, 2 * kPiece, 1);
  const Answer lease = named.Acquire(writer, 1, proto::kFlagWrite);
  named.Fill(lease.spans, 1, 2);
  named.Send(writer, Op::kRelease, {{0, 0, 0, World::LeaseOf(lease)}});
  const uint64_t persisting = named.Send(writer, Op::kPersist, {});
  const Answer persisted = named.Wait(writer, persisting);
  EXPECT_EQ(persisted.code, Code::kOk) << persisted.detail;
}

}  // namespace
}  // namespace tier::tiering::testing
