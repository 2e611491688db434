// What remains when a writer dies or gives up: reverted pieces, torn pieces, and how a tensor gets whole again.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint64_t kPiece = kBlockSize;

class Death : public ::testing::Test {
 protected:
  Death() : job(world.OpenJob()), writer(world.OpenSession(job)), reader(world.OpenSession(job)) {}

  // Leases pieces [first, first + count) for writing, fills them, and keeps the lease.
  uint64_t Write(uint64_t tensor, uint64_t first, uint64_t count, uint64_t seed, uint32_t flags = 0) {
    const Answer granted =
        world.Acquire(writer, tensor, kShared | proto::kFlagWrite | flags, first * kPiece, count * kPiece);
    EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, tensor, seed, first * kPiece);
    return World::LeaseOf(granted);
  }
  void Update(uint64_t tensor, uint64_t first, uint64_t count, uint64_t seed) {
    EXPECT_EQ(world.Release(writer, Write(tensor, first, count, seed)).code, Code::kOk);
  }
  void Kill() {
    world.EndSession(writer, "killed");
    world.engine->CheckInvariants();
  }
  bool Torn(uint64_t tensor) {
    return (world.Ask(reader, Op::kStat, {{tensor, 0, 0, 0}}, kShared).value & proto::kTensorTorn) != 0;
  }
  Code Tear(uint64_t tensor) { return world.Ask(writer, Op::kTear, {{tensor, 0, 0, 0}}, kShared).code; }
  Code Check(uint64_t tensor, uint64_t seed = 1) { return world.Check(reader, tensor, seed, kShared); }

  World world;
  JobId job;
  SessionId writer;
  SessionId reader;
};

TEST_F(Death, AWriterOverASsdCopyLeavesTheOldBytes) {
  world.PutOnSsd(writer, 1, 3 * kPiece, 1, kShared);
  Write(1, 0, 3, 2);
  Kill();
  EXPECT_FALSE(Torn(1));
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, AWriterThatDiscardsOverASsdCopyLeavesTheOldBytesToo) {
  world.PutOnSsd(writer, 1, 3 * kPiece, 1, kShared);
  Write(1, 0, 3, 2, proto::kFlagDiscard);
  Kill();
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, AWriterOverBytesThatAreNowhereElseTearsThem) {
  world.Put(writer, 1, 3 * kPiece, 1, kShared);
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_TRUE(Torn(1));
  const Answer refused = world.Acquire(reader, 1, kShared);
  EXPECT_EQ(refused.code, Code::kTorn);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_EQ(refused.error.requested, kPiece) << "the offset of the first piece to blame";
  EXPECT_NE(refused.detail.find("1 (torn at generation 2)"), std::string::npos) << refused.detail;
}

TEST_F(Death, ATornTensorRefusesRangesThatAreWholeToo) {
  world.Put(writer, 1, 3 * kPiece, 1, kShared);
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_EQ(world.Acquire(reader, 1, kShared, 0, 100).code, Code::kTorn);
}

TEST_F(Death, ASliceWrittenBeforeAndASliceRevertedAreMixed) {
  world.PutOnSsd(writer, 1, 3 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_TRUE(Torn(1)) << "piece 0 is of the new step, piece 1 of the old one";
  const Answer refused = world.Acquire(reader, 1, kShared);
  EXPECT_EQ(refused.code, Code::kTorn);
  EXPECT_NE(refused.detail.find("0 (at generation 2), 1 (at generation 1), 2 (at generation 1)"), std::string::npos)
      << refused.detail;
}

TEST_F(Death, SlicesThatAllRevertAreNotMixed) {
  world.PutOnSsd(writer, 1, 4 * kPiece, 1, kShared);
  Write(1, 0, 1, 2);
  Write(1, 2, 1, 2);
  Kill();
  EXPECT_FALSE(Torn(1));
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, AStepFinishesWhatWasWrittenBeforeIt) {
  world.PutOnSsd(writer, 1, 2 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  world.Wait(writer, world.SendArgument(writer, Op::kStep, UINT64_MAX));
  Write(1, 1, 1, 3);
  Kill();
  EXPECT_FALSE(Torn(1));
  const Answer granted = world.Acquire(reader, 1, kShared);
  ASSERT_EQ(granted.code, Code::kOk);
}

TEST_F(Death, AnotherSessionsStepFinishesNothingOfThisOne) {
  world.PutOnSsd(writer, 1, 2 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  world.Wait(reader, world.SendArgument(reader, Op::kStep, UINT64_MAX));
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_TRUE(Torn(1));
}

TEST_F(Death, AWholeSealFinishesWhatWasWrittenBeforeIt) {
  world.PutOnSsd(writer, 1, 2 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  Update(1, 0, 2, 3);
  EXPECT_EQ(world.Flush(reader, 1, kShared).code, Code::kOk);
  Write(1, 1, 1, 4);
  Kill();
  EXPECT_FALSE(Torn(1));
  EXPECT_EQ(Check(1, 3), Code::kOk);
}

TEST_F(Death, WhatOthersChangedIsNotMixedWithTheDeadOnes) {
  world.PutOnSsd(writer, 1, 2 * kPiece, 1, kShared);
  const Answer granted = world.Acquire(reader, 1, kShared | proto::kFlagWrite, 0, kPiece);
  world.Fill(granted.spans, 1, 1);
  world.Release(reader, World::LeaseOf(granted));
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_FALSE(Torn(1)) << "the dead session changed only what went back";
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, OneSessionsDeathTearsOnlyWhatItHeld) {
  world.PutOnSsd(writer, 1, kPiece, 1, kShared);
  world.Put(reader, 2, kPiece, 5, kShared);
  Write(1, 0, 1, 2);
  Kill();
  EXPECT_EQ(Check(1, 1), Code::kOk);
  EXPECT_EQ(Check(2, 5), Code::kOk);
}

TEST_F(Death, AcceptingATornTensorTakesItAsItStands) {
  world.Put(writer, 1, 2 * kPiece, 1, kShared);
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_FALSE(Torn(1));
  const Answer granted = world.Acquire(reader, 1, kShared);
  ASSERT_EQ(granted.code, Code::kOk);
  world.Release(reader, World::LeaseOf(granted));
  EXPECT_EQ(world.Flush(reader, 1, kShared).code, Code::kOk) << "and it is like any other from now on";
}

TEST_F(Death, RewritingTheTornPiecesMakesItWhole) {
  world.Put(writer, 1, 3 * kPiece, 1, kShared);
  Write(1, 1, 1, 2);
  Kill();
  EXPECT_EQ(world.Acquire(reader, 1, kShared | proto::kFlagWrite, kPiece, kPiece).code, Code::kTorn)
      << "the old bytes are not there";
  EXPECT_EQ(world.Acquire(reader, 1, kShared | proto::kFlagWrite | proto::kFlagDiscard, kPiece, 100).code, Code::kTorn);
  const Answer granted = world.Acquire(reader, 1, kShared | proto::kFlagWrite | proto::kFlagDiscard, kPiece, kPiece);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  world.Fill(granted.spans, 1, 1, kPiece);
  EXPECT_TRUE(Torn(1)) << "until it is sealed";
  world.Release(reader, World::LeaseOf(granted));
  EXPECT_FALSE(Torn(1));
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, AWriterTearsWhatItCannotFinishWithoutAnyRoom) {
  world.PutOnSsd(writer, 1, 3 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  EXPECT_EQ(world.Flush(reader, 1, kShared).code, Code::kOk);
  EXPECT_EQ(world.Drop(reader, 1, kShared).code, Code::kOk);  // All of it is on SSD, new bytes beside old ones.
  const uint64_t windows = world.windows.window_count();
  EXPECT_EQ(Tear(1), Code::kOk);
  EXPECT_EQ(world.windows.window_count(), windows);
  EXPECT_EQ(Check(1), Code::kTorn);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  const Answer granted = world.Acquire(reader, 1, kShared, 0, kPiece);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(world.Matches(granted.spans, 1, 2)) << "the bytes themselves are as they were";
}

TEST_F(Death, APieceOnItsWayToSsdIsTornAllTheSame) {
  world.Put(writer, 1, 2 * kPiece, 1, kShared);
  world.transfers.Hold();
  const uint64_t flushing = world.Send(writer, Op::kFlush, {{1, 0, 0, 0}}, kShared);
  world.Turns(2);
  EXPECT_EQ(Tear(1), Code::kOk);
  EXPECT_EQ(Tear(1), Code::kOk) << "twice is once";
  EXPECT_TRUE(Torn(1));
  world.transfers.Release();
  world.Wait(writer, flushing);
  EXPECT_EQ(Check(1), Code::kTorn);
  EXPECT_EQ(world.Rewrite(writer, 1, 3, kShared | proto::kFlagDiscard).code, Code::kOk);
  EXPECT_EQ(Check(1, 3), Code::kOk) << "rewritten whole, it is whole";
}

TEST_F(Death, AnotherWritersLeaseOutlivesATear) {
  world.Put(writer, 1, 2 * kPiece, 1, kShared);
  const uint64_t lease = Write(1, 0, 2, 3);
  const uint64_t waiting = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, kShared);
  EXPECT_EQ(Tear(1), Code::kOk);
  EXPECT_EQ(world.Wait(reader, waiting).code, Code::kTorn) << "who waits is told";
  EXPECT_EQ(world.Release(writer, lease).code, Code::kOk);
  EXPECT_FALSE(Torn(1)) << "every piece was sealed since";
  EXPECT_EQ(Check(1, 3), Code::kOk);
}

TEST_F(Death, AWindowThatFaultsUnderATornPieceCountsItOnce) {
  world.Put(writer, 1, kPiece, 1, kShared);
  world.transfers.Hold();
  world.Send(writer, Op::kFlush, {{1, 0, 0, 0}}, kShared);
  world.Turns(2);
  EXPECT_EQ(Tear(1), Code::kOk);
  world.transfers.PunchWindow(WindowIndex{0});
  world.transfers.Release();
  world.Turns(3);
  world.engine->CheckInvariants();
}

TEST_F(Death, WhatIsStillBeingCreatedIsNotTorn) {
  ASSERT_EQ(world.CreateRange(writer, 1, 3 * kPiece, 0, kPiece).code, Code::kOk);
  EXPECT_EQ(world.Ask(writer, Op::kTear, {{1, 0, 0, 0}}).code, Code::kInvalid);
  EXPECT_EQ(world.Ask(writer, Op::kTear, {{2, 0, 0, 0}}).code, Code::kNotFound);
}

TEST_F(Death, FreeingATornTensorGivesItsNameBack) {
  world.Put(writer, 1, kPiece, 1, kShared);
  Write(1, 0, 1, 2);
  Kill();
  EXPECT_EQ(world.Free(reader, 1, kShared).code, Code::kOk);
  world.Put(reader, 1, 100, 7, kShared);
  EXPECT_EQ(Check(1, 7), Code::kOk);
  EXPECT_EQ(world.engine->Snapshot().torn_count, 0u);
}

TEST_F(Death, ARewriterThatDiesOverATornPieceLeavesItTorn) {
  world.Put(writer, 1, kPiece, 1, kShared);
  Write(1, 0, 1, 2);
  Kill();
  writer = world.OpenSession(job);
  Write(1, 0, 1, 3, proto::kFlagDiscard);
  Kill();
  EXPECT_TRUE(Torn(1));
  EXPECT_EQ(world.engine->Snapshot().torn_count, 1u);
}

TEST_F(Death, ARewriterThatDiesOverAMixedPieceLeavesItMixed) {
  world.PutOnSsd(writer, 1, 2 * kPiece, 1, kShared);
  Update(1, 0, 1, 2);
  Write(1, 1, 1, 2);
  Kill();
  writer = world.OpenSession(job);
  Write(1, 1, 1, 3, proto::kFlagDiscard);
  Kill();
  EXPECT_TRUE(Torn(1));
  writer = world.OpenSession(job);
  EXPECT_EQ(world.Release(writer, Write(1, 1, 1, 3, proto::kFlagDiscard)).code, Code::kOk);
  EXPECT_TRUE(Torn(1)) << "piece 0 is still what the first writer left";
  EXPECT_EQ(world.Release(writer, Write(1, 0, 1, 3, proto::kFlagDiscard)).code, Code::kOk);
  EXPECT_FALSE(Torn(1));
  EXPECT_EQ(Check(1, 3), Code::kOk);
}

TEST_F(Death, GivingUpAWriteLeaseIsLikeDyingOverIt) {
  world.PutOnSsd(writer, 1, kPiece, 1, kShared);
  EXPECT_EQ(world.Release(writer, Write(1, 0, 1, 2), proto::kFlagAbandon).code, Code::kOk);
  EXPECT_EQ(Check(1, 1), Code::kOk);
  world.Put(writer, 2, kPiece, 1, kShared);
  EXPECT_EQ(world.Release(writer, Write(2, 0, 1, 2), proto::kFlagAbandon).code, Code::kOk);
  EXPECT_EQ(Check(2, 1), Code::kTorn);
}

TEST_F(Death, AReadersDeathChangesNothing) {
  world.Put(writer, 1, kPiece, 1, kShared);
  world.Acquire(writer, 1, kShared);
  Kill();
  EXPECT_EQ(Check(1, 1), Code::kOk);
  EXPECT_EQ(world.Job(job).lease_count, 0u);
}

TEST_F(Death, WhatItWasCreatingIsGone) {
  world.Create(writer, 1, 3 * kPiece, kShared);
  const Answer range = world.Ask(writer, Op::kCreate, {{2, 0, kPiece, 3 * kPiece}}, kShared);
  world.Release(writer, World::LeaseOf(range));
  const uint64_t waiting = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, kShared);
  Kill();
  EXPECT_EQ(world.Wait(reader, waiting).code, Code::kNotFound);
  EXPECT_EQ(Check(2), Code::kNotFound) << "also one between its ranges";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
}

TEST_F(Death, ItsOwnNamespaceGoesAndTheSharedOneStays) {
  world.Put(writer, 1, kPiece, 1);
  world.Put(writer, 2, kPiece, 2, kShared);
  Kill();
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u);
  EXPECT_EQ(Check(2, 2), Code::kOk);
}

TEST_F(Death, PiecesInTransferGoWhenTheTransferEnds) {
  world.transfers.Hold();
  world.Put(writer, 1, 3 * kPiece, 1);
  world.Send(writer, Op::kFlush, {{1, 0, 0, 0}});
  world.Turns(3);
  EXPECT_EQ(world.transfers.inflight(), 3u);
  Kill();
  EXPECT_EQ(world.Job(job).ram_bytes, 3 * kPiece) << "the device may still read them";
  world.transfers.Release();
  world.Turns(3);
  EXPECT_EQ(world.Job(job).ram_bytes, 0u);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST_F(Death, WhatItHeldIsAllocatableInTheSameTurn) {
  World small({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}});
  const JobId one = small.OpenJob();
  const SessionId hog = small.OpenSession(one);
  const SessionId other = small.OpenSession(one);
  EXPECT_EQ(small.Create(hog, 1, 8 * kMiB).code, Code::kOk);
  const uint64_t waiting = small.Send(other, Op::kCreate, {{1, 0, 0, 8 * kMiB}});
  small.Turns(3);
  EXPECT_FALSE(small.Answered(other, waiting).has_value());
  small.EndSession(hog, "killed");
  small.Turn();
  ASSERT_TRUE(small.Answered(other, waiting).has_value());
  EXPECT_EQ(small.Answered(other, waiting)->code, Code::kOk);
}

TEST_F(Death, ALeaseItWasNeverToldOfIsTakenBackNotTorn) {
  world.Put(writer, 1, kPiece, 1, kShared);
  world.Send(writer, Op::kAcquire, {{1, 0, 0, 0}}, kShared | proto::kFlagWrite);
  Kill();  // Before the turn that would have said so.
  EXPECT_EQ(Check(1, 1), Code::kOk);
}

TEST_F(Death, ItsRequestsAreNotAnswered) {
  world.Put(writer, 1, kPiece, 1, kShared);
  const uint64_t asked = world.Send(writer, Op::kAcquire, {{1, 0, 0, 0}}, kShared);
  Kill();
  world.Turns(3);
  EXPECT_FALSE(world.Answered(writer, asked).has_value());
  EXPECT_FALSE(world.sink.ended.contains(static_cast<uint64_t>(writer))) << "the session layer knows already";
}

TEST_F(Death, AWindowTakenAwayEndsTheJobsSessionsAndNobodyElses) {
  const SessionId stranger = world.Open();
  world.Put(stranger, 1, kPiece, 3);
  world.Put(writer, 1, kPiece, 1, kShared);
  world.transfers.PunchWindow(WindowIndex{1});
  world.Send(writer, Op::kFlush, {{1, 0, 0, 0}}, kShared);
  world.Turns(5);
  for (const SessionId session : {writer, reader}) {
    const auto ended = world.sink.ended.find(static_cast<uint64_t>(session));
    ASSERT_NE(ended, world.sink.ended.end());
    EXPECT_EQ(ended->second.first, Code::kRevoked);
    EXPECT_NE(ended->second.second.find("(tensor 0x1 at byte 0)"), std::string::npos) << ended->second.second;
    EXPECT_NE(ended->second.second.find("punched"), std::string::npos);
  }
  EXPECT_FALSE(world.sink.ended.contains(static_cast<uint64_t>(stranger)));
  EXPECT_EQ(world.Check(stranger, 1, 3), Code::kOk);
}

TEST_F(Death, ClosingAJobEndsItsSessionsWithTheReason) {
  world.Put(writer, 1, kPiece, 1, kShared);
  world.engine->CloseJob(job, "removed by the operator", true);
  world.Turns(3);
  EXPECT_EQ(world.sink.ended.at(static_cast<uint64_t>(reader)).second, "removed by the operator");
  EXPECT_EQ(world.windows.window_count(), 0u);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
}

TEST_F(Death, OfManyThatItCreatedTheUnfinishedOnesGo) {
  world.PutEach(writer, 1, 300, 100, kShared);  // Many more than it is asked to remember.
  for (uint64_t id = 301; id <= 303; ++id) (void)world.Create(writer, id, 100, kShared);
  const uint64_t replaced = world.Send(writer, Op::kCreate, {{301, 0, 0, 200}}, kShared | proto::kFlagReplace);
  ASSERT_EQ(world.Wait(writer, replaced).code, Code::kOk);
  EXPECT_EQ(world.Free(writer, 5, kShared).code, Code::kOk);
  (void)world.Create(reader, 5, 100, kShared);  // Somebody else's now.
  Kill();
  for (uint64_t id = 6; id <= 300; ++id) EXPECT_EQ(Check(id, id), Code::kOk) << id;
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 300u);
}

}  // namespace
}  // namespace tier::tiering::testing
