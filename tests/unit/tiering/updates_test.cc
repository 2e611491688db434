// Updates by hand: sessions that change parts of a tensor, and what remains when one of them ends.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kSize = 3 * kPiece;
const JobOptions kResume{.key = "1000/training", .named = true, .resume = true};

class Updates : public ::testing::Test {
 protected:
  Updates()
      : world({.manifests = true}),
        job(world.OpenJob({.key = "1000/training", .named = true})),
        writer(world.OpenSession(job)),
        reader(world.OpenSession(job)) {
    world.PutOnSsd(writer, 1, kSize, 1, kShared);
  }
  uint64_t Lease(SessionId session, uint64_t piece, uint64_t seed, uint32_t flags = 0) {
    const Answer granted = world.Acquire(session, 1, kShared | proto::kFlagWrite | flags, piece * kPiece, kPiece);
    EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, 1, seed, piece * kPiece);
    return World::LeaseOf(granted);
  }
  void Update(SessionId session, uint64_t piece, uint64_t seed, uint32_t flags = 0) {
    EXPECT_EQ(world.Release(session, Lease(session, piece, seed, flags)).code, Code::kOk);
  }
  void Step(SessionId session) { world.Wait(session, world.SendArgument(session, Op::kStep, UINT64_MAX)); }
  void End(SessionId session) {
    world.EndSession(session, "gone");
    world.engine->CheckInvariants();
  }
  bool Torn() { return (world.Ask(reader, Op::kStat, {{1, 0, 0, 0}}, kShared).value & proto::kTensorTorn) != 0; }
  Code Check(uint64_t seed) { return world.Check(reader, 1, seed, kShared); }
  void Resume() {
    world.engine->CloseJob(job, "closed", false);
    world.Turns(5);
    job = world.OpenJob(kResume);
    writer = world.OpenSession(job);
    reader = world.OpenSession(job);
  }

  World world;
  JobId job;
  SessionId writer;
  SessionId reader;
};

TEST_F(Updates, AreTornWhenTheirSessionDiesBetweenTwoSlices) {
  Update(writer, 0, 2);
  EXPECT_FALSE(Torn()) << "ranges sealed by hand are visible at once";
  End(writer);
  EXPECT_TRUE(Torn()) << "piece 0 is of the new step, the others of the old one";
  const Answer refused = world.Acquire(reader, 1, kShared);
  EXPECT_EQ(refused.code, Code::kTorn);
  EXPECT_NE(refused.detail.find("0 (at generation 2), 1 (at generation 1), 2 (at generation 1)"), std::string::npos)
      << refused.detail;
  EXPECT_EQ(world.engine->Snapshot().torn_count, 1u);
}

TEST_F(Updates, AreTornWhenTheirSessionLeavesInGoodOrder) {
  Update(writer, 2, 2);
  world.EndSession(writer, "goodbye");
  EXPECT_EQ(Check(1), Code::kTorn);
}

TEST_F(Updates, AreFinishedByAStepOfTheirSession) {
  Update(writer, 0, 1);
  Step(writer);
  End(writer);
  EXPECT_EQ(Check(1), Code::kOk);
}

TEST_F(Updates, AreNotFinishedByAStepOfAnotherSession) {
  Update(writer, 0, 2);
  Step(reader);
  End(writer);
  EXPECT_TRUE(Torn());
}

TEST_F(Updates, OfEveryPieceAreAWholeWrite) {
  for (const uint64_t piece : {2, 0, 1}) Update(writer, piece, 2);
  End(writer);
  EXPECT_EQ(Check(2), Code::kOk);
}

TEST_F(Updates, BeginAgainAfterEveryPieceWasWritten) {
  for (const uint64_t piece : {2, 0, 1}) Update(writer, piece, 2);
  Update(writer, 0, 3);
  End(writer);
  EXPECT_TRUE(Torn()) << "the second pass did not reach the other pieces";
}

TEST_F(Updates, WithoutASealLeaveNothing) {
  Lease(writer, 0, 2);
  End(writer);
  EXPECT_FALSE(Torn());
  EXPECT_EQ(Check(1), Code::kOk);
}

TEST_F(Updates, WhosePieceGoesBackToItsOwnEarlierSealAreTorn) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Flush(reader, 1, kShared).code, Code::kOk);
  Lease(writer, 0, 3);
  End(writer);
  EXPECT_TRUE(Torn()) << "piece 0 goes back to seed 2, which the others never had";
}

TEST_F(Updates, OfTwoSessionsOverOnePieceBelongToBoth) {
  Update(writer, 0, 2);
  Update(reader, 0, 3);
  Step(reader);
  End(writer);
  EXPECT_TRUE(Torn()) << "the writer had not finished, though another session changed the piece last";
}

TEST_F(Updates, OfTwoSessionsEndOneByOne) {
  Update(writer, 0, 1);
  Update(reader, 1, 1);
  Step(writer);
  End(writer);
  EXPECT_FALSE(Torn());
  const SessionId third = world.OpenSession(job);
  End(reader);
  EXPECT_EQ(world.Check(third, 1, 1, kShared), Code::kTorn);
}

TEST_F(Updates, AreEndedByAWholeSealOfAnybody) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Rewrite(reader, 1, 5, kShared).code, Code::kOk);
  End(writer);
  EXPECT_EQ(Check(5), Code::kOk);
}

TEST_F(Updates, AreEndedByAnAccept) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  End(writer);
  EXPECT_FALSE(Torn());
}

TEST_F(Updates, GoWithAReplacedTensor) {
  Update(writer, 0, 2);
  const Answer created = world.Ask(reader, Op::kCreate, {{1, 0, 0, kSize}}, kShared | proto::kFlagReplace);
  ASSERT_EQ(created.code, Code::kOk);
  world.Fill(created.spans, 1, 7);
  EXPECT_EQ(world.Release(reader, World::LeaseOf(created)).code, Code::kOk);
  End(writer);
  EXPECT_EQ(Check(7), Code::kOk);
}

TEST_F(Updates, ThatWereTornAreWholeWhenEveryPieceWasRewritten) {
  Update(writer, 0, 2);
  End(writer);
  EXPECT_EQ(world.Acquire(reader, 1, kShared | proto::kFlagWrite, 0, kPiece).code, Code::kTorn) << "without discard";
  for (const uint64_t piece : {1, 2}) Update(reader, piece, 4, proto::kFlagDiscard);
  EXPECT_TRUE(Torn()) << "nobody knows what piece 0 should hold";
  Update(reader, 0, 4, proto::kFlagDiscard);
  EXPECT_FALSE(Torn());
  EXPECT_EQ(Check(4), Code::kOk);
  EXPECT_EQ(world.engine->Snapshot().torn_count, 0u);
}

TEST_F(Updates, ThatWereTornAreAcceptedAsTheyStand) {
  Update(writer, 0, 2);
  End(writer);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kTorn);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  const Answer granted = world.Acquire(reader, 1, kShared, 0, kPiece);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(world.Matches(granted.spans, 1, 2));
}

TEST_F(Updates, WhoseSessionGivesUpASliceAreTorn) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Release(writer, Lease(writer, 1, 2), proto::kFlagAbandon).code, Code::kOk);
  EXPECT_EQ(Check(1), Code::kTorn);
}

TEST_F(Updates, AreOpenAgainWithWhatIsWrittenAfterAStep) {
  Update(writer, 0, 2);
  Step(writer);
  Update(writer, 1, 3);
  End(writer);
  EXPECT_TRUE(Torn());
}

TEST_F(Updates, OfManyTensorsAnswerTornAtOnce) {
  constexpr uint64_t kTensors = 20;
  for (uint64_t id = 10; id < 10 + kTensors; ++id) {
    world.Put(writer, id, 2 * kPageSize + kPiece, id, kShared);
    const Answer slice = world.Acquire(writer, id, kShared | proto::kFlagWrite, 0, kPiece);
    ASSERT_EQ(world.Release(writer, World::LeaseOf(slice)).code, Code::kOk);
  }
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.engine->Snapshot().torn_count, kTensors) << "before any turn";
}

TEST_F(Updates, OfATensorThatGoesWithItsSessionAreNotCountedAsTorn) {
  world.Put(writer, 5, kSize, 1);
  const Answer slice = world.Acquire(writer, 5, proto::kFlagWrite, 0, kPiece);
  EXPECT_EQ(world.Release(writer, World::LeaseOf(slice)).code, Code::kOk);
  world.EndSession(writer, "gone");
  EXPECT_EQ(world.engine->Snapshot().torn_count, 0u);
}

TEST_F(Updates, OfTheSessionThatPersistsAreEndedByIt) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Ask(writer, Op::kPersist, {}).code, Code::kOk);
  End(writer);
  EXPECT_FALSE(Torn());
  Resume();
  EXPECT_FALSE(Torn()) << "the manifest holds a finished update";
}

TEST_F(Updates, OfOthersAreNotEndedByAPersist) {
  Update(writer, 0, 2);
  Update(reader, 1, 3);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kOk);
  End(writer);
  EXPECT_TRUE(Torn());
}

TEST_F(Updates, AreNotEndedByAPersistThatFails) {
  Update(writer, 0, 2);
  world.manifests.FailNext(Code::kIoError, "the disk said no");
  EXPECT_EQ(world.Ask(writer, Op::kPersist, {}).code, Code::kIoError);
  End(writer);
  EXPECT_TRUE(Torn());
}

TEST_F(Updates, ThatGoOnWhileTheirManifestIsCommittedStayOpen) {
  Update(writer, 0, 2);
  world.manifests.SetDelay(5);
  const uint64_t persisting = world.Send(writer, Op::kPersist, {});
  world.Turns(4);
  ASSERT_FALSE(world.Answered(writer, persisting).has_value());
  Update(writer, 1, 3);
  EXPECT_EQ(world.Wait(writer, persisting).code, Code::kOk);
  End(writer);
  EXPECT_TRUE(Torn()) << "piece 1 is newer than what the manifest finished";
}

TEST_F(Updates, OfOthersAreRecordedInTheManifest) {
  Update(writer, 0, 2);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kOk);
  Step(writer);
  Resume();
  EXPECT_EQ(Check(1), Code::kTorn) << "what the manifest names is half of an update";
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kTorn);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Acquire(reader, 1, kShared).code, Code::kOk);
}

TEST_F(Updates, ThatEndedBeforeAPersistAreNotRecorded) {
  Update(writer, 0, 1);
  Step(writer);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kOk);
  Resume();
  EXPECT_EQ(Check(1), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
