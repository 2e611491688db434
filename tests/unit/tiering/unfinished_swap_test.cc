// A swap_out over a tensor that exists: sealed range by range, waited for by others, torn when it never ends.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kSize = 3 * kPiece;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint32_t kMore = proto::kFlagMore;

class UnfinishedSwaps : public ::testing::Test {
 protected:
  explicit UnfinishedSwaps(const WorkUnits& work = {})
      : world({.engine = {.unfinished_swaps_per_session_max = 3, .work = work}, .manifests = true}),
        job(world.OpenJob({.key = "1000/training", .named = true})),
        writer(world.OpenSession(job)),
        reader(world.OpenSession(job)) {
    world.Put(writer, 1, kSize, 1, kShared);
  }
  uint64_t Lease(uint64_t offset, uint64_t length, uint64_t tensor = 1) {
    const Answer granted = world.Acquire(writer, tensor, kShared | proto::kFlagWrite, offset, length);
    EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, tensor, 2, offset);
    return World::LeaseOf(granted);
  }
  Answer Release(uint64_t lease, uint32_t flags, uint64_t offset = 0, uint64_t length = kSize) {
    return world.Ask(writer, Op::kRelease, {{0, offset, length, lease}}, flags);
  }
  Answer Write(uint32_t piece, uint32_t flags) { return Release(Lease(piece * kPiece, kPiece), flags); }
  bool Torn() { return (world.Ask(reader, Op::kStat, {{1, 0, 0, 0}}, kShared).value & proto::kTensorTorn) != 0; }

  World world;
  JobId job;
  SessionId writer;
  SessionId reader;
};

TEST_F(UnfinishedSwaps, OfAWriterThatDiesBetweenRangesAreTorn) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(Write(2, kMore).code, Code::kOk);
  EXPECT_FALSE(Torn()) << "its writer may still end it";
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 1, kShared), Code::kTorn);
  EXPECT_EQ(world.Acquire(reader, 1, kShared, kPiece, 10).code, Code::kTorn) << "its old part as well";
  EXPECT_EQ(world.Rewrite(reader, 1, 3, kShared | proto::kFlagDiscard).code, Code::kOk);
  EXPECT_EQ(world.Check(reader, 1, 3, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, ThatWereEndedAreWhole) {
  for (const uint32_t piece : {0u, 2u}) EXPECT_EQ(Write(piece, kMore).code, Code::kOk);
  EXPECT_EQ(Write(1, 0).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 2, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, OfAPartTearThatPartOnly) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  const Answer rest = world.Acquire(reader, 1, kShared | proto::kFlagWrite | proto::kFlagDiscard, 0, 2 * kPiece);
  EXPECT_EQ(world.Release(reader, World::LeaseOf(rest)).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, OfASecondRangeAreRefusedWhileTheFirstIsUnfinished) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  const Answer refused = Release(Lease(kPiece, kPiece), kMore, 0, kSize);
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_NE(refused.detail.find("unfinished swap_out over pieces 0 + 2 of tensor 0x1"), std::string::npos)
      << refused.detail;
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  world.EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, ThatTheWriterTearsItselfAreEnded) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(writer, Op::kTear, {{1, 0, kSize, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, AreTornAtOnceHoweverMuchOthersAskFor) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  std::vector<proto::RequestItem> many(proto::kItemsPerRequestMax, {1, 0, 0, 0});
  for (uint32_t work = 0; work < 2 * kLookMax; work += 3 * proto::kItemsPerRequestMax) {
    world.Send(reader, Op::kDrop, many, kShared);  // All the work of this turn.
  }
  const uint64_t tearing = world.Send(writer, Op::kTear, {{1, 0, kSize, 0}}, kShared);
  world.Turn();
  ASSERT_TRUE(world.Answered(writer, tearing));
  EXPECT_TRUE(Torn());
}

TEST_F(UnfinishedSwaps, ThatTheirSessionWroteWholeSinceHaveEnded) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Rewrite(writer, 1, 5, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kOk) << "nothing to wait for";
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 5, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, ThatSomebodyAcceptedSinceHaveEnded) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kTear, {{1, 0, 1, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, GoWithTheirTensor) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Free(reader, 1, kShared).code, Code::kOk);
  world.Put(reader, 1, kSize, 7, kShared);
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 7, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, UnderALeaseAtDeathTearWhatWasSealedToo) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  Lease(kPiece, kPiece);
  world.EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, AreWaitedForByManifests) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {});
  world.Turns(30);
  EXPECT_FALSE(world.Answered(reader, persisting)) << "half of it is old";
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kOk);
}

TEST_F(UnfinishedSwaps, HoldUpNothingElseThatAManifestHasToWrite) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  world.Put(writer, 0x2a, 100, 1, kShared);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {{1, 0, 0, 0}, {0x2a, 0, 0, 0}}, kShared);
  world.Turns(30);
  EXPECT_FALSE(world.Answered(reader, persisting));
  EXPECT_EQ(world.Ask(reader, Op::kStat, {{0x2a, 0, 0, 0}}, kShared).tensor.ssd_bytes, 100u);
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kOk);
}

TEST_F(UnfinishedSwaps, ThatAManifestWaitedForTooLongAreNamed) {
  world.Put(writer, 0x2a, kSize, 1, kShared);
  EXPECT_EQ(Release(Lease(0, kPiece, 0x2a), kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {{1, 0, 0, 0}, {0x2a, 0, 0, 0}}, kShared);
  world.Turns(30);
  world.Advance(std::chrono::minutes(2));
  const Answer refused = world.Wait(reader, persisting);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_EQ(refused.error.tensor, 0x2au);
  EXPECT_NE(refused.detail.find("tensor 0x2a was under an unfinished swap_out of session 2"), std::string::npos)
      << refused.detail;
}

TEST_F(UnfinishedSwaps, OfATornTensorAreRefusedToManifestsAtOnce) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kTear, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kTorn);
}

TEST_F(UnfinishedSwaps, ThatNeverEndAreInNoManifest) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {});
  world.Turns(30);
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kTorn);
}

TEST_F(UnfinishedSwaps, OfACreationNeedNoNote) {
  const Answer granted = world.CreateRange(writer, 2, kSize, 0, kPiece);
  EXPECT_EQ(Release(World::LeaseOf(granted), kMore).code, Code::kOk);
  EXPECT_EQ(world.Acquire(writer, 2, proto::kFlagWrite, kPiece, 2 * kPiece).code, Code::kOk);
}

TEST_F(UnfinishedSwaps, AskedForInNonsenseAreRefusedAndTheLeaseEnds) {
  const std::pair<uint64_t, uint64_t> nonsense[] = {{0, 0}, {kPiece, kPiece}, {0, kSize + 1}, {UINT64_MAX, 2}, {1, 0}};
  for (const auto& [offset, length] : nonsense) {
    const Answer refused = Release(Lease(0, kPiece), kMore, offset, length);
    EXPECT_EQ(refused.code, Code::kInvalid) << offset << " + " << length;
    EXPECT_NE(refused.detail.find("a lease of bytes 0 + 2097152 of tensor 0x1"), std::string::npos) << refused.detail;
    EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  }
  const Answer reading = world.Acquire(writer, 1, kShared);
  EXPECT_EQ(Release(World::LeaseOf(reading), 0).code, Code::kInvalid) << "nothing was written";
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  world.Wait(writer, world.SendArgument(writer, Op::kStep, UINT64_MAX));
  world.EndSession(writer, "killed");
  EXPECT_FALSE(Torn()) << "sealed by hand, and finished by the step";
}

TEST_F(UnfinishedSwaps, MoreThanASessionMayHaveAreRefused) {
  for (const uint64_t id : {10, 11, 12}) {
    world.Put(writer, id, 2 * kPiece, 1, kShared);
    ASSERT_EQ(Release(Lease(0, kPiece, id), kMore, 0, 2 * kPiece).code, Code::kOk) << id;
  }
  const Answer refused = Write(0, kMore);
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_NE(refused.detail.find("unfinished swap_outs over 3 tensors"), std::string::npos) << refused.detail;
  EXPECT_EQ(world.Free(writer, 10, kShared).code, Code::kOk);
  EXPECT_EQ(Write(0, kMore).code, Code::kOk) << "that one is gone";
}

// What another session asks for meanwhile.

TEST_F(UnfinishedSwaps, AreNotReadInTheMiddleByAnybodyElse) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t whole = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, kShared);
  const uint64_t range = world.Send(reader, Op::kAcquire, {{1, 2 * kPiece, 100, 0}}, kShared);
  const uint64_t writing = world.Send(reader, Op::kAcquire, {{1, kPiece, kPiece, 0}}, kShared | proto::kFlagWrite);
  world.Turns(10);
  for (const uint64_t waiting : {whole, range, writing}) EXPECT_FALSE(world.Answered(reader, waiting).has_value());
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  const Answer granted = world.Wait(reader, whole);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  EXPECT_TRUE(world.Matches(granted.spans, 1, 2)) << "all of it new";
  world.Release(reader, World::LeaseOf(granted));
  EXPECT_EQ(world.Release(reader, World::LeaseOf(world.Wait(reader, range))).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, writing).code, Code::kOk);
}

TEST_F(UnfinishedSwaps, ThatHaveSealedNothingTakeNoReadersTurn) {
  const Answer granted = world.Acquire(writer, 1, kShared | proto::kFlagWrite, 0, kPiece);
  EXPECT_EQ(world.Acquire(reader, 1, kShared, kPiece, kPiece).code, Code::kOk);
  EXPECT_EQ(Release(World::LeaseOf(granted), proto::kFlagUntouched | kMore).code, Code::kOk);
  EXPECT_EQ(world.Check(reader, 1, 1, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, OfARangeAreWaitedForThereOnly) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  EXPECT_EQ(world.Acquire(reader, 1, kShared, 2 * kPiece, kPiece).code, Code::kOk);
  const uint64_t inside = world.Send(writer, Op::kAcquire, {{1, kPiece, kPiece, 0}}, kShared);
  EXPECT_EQ(world.Wait(writer, inside).code, Code::kOk) << "its own session passes";
}

TEST_F(UnfinishedSwaps, RefuseWhoLeasesAPartAndAsksForMore) {
  const Answer part = world.Acquire(reader, 1, kShared, 2 * kPiece, kPiece);
  const uint64_t queued = world.Send(reader, Op::kAcquire, {{1, 0, kPiece, 0}}, kShared | proto::kFlagWrite);
  EXPECT_EQ(world.Release(reader, World::LeaseOf(world.Wait(reader, queued)), proto::kFlagUntouched).code, Code::kOk);
  const uint64_t lease = Lease(0, kPiece);
  const uint64_t before = world.Send(reader, Op::kAcquire, {{1, 0, kPiece, 0}}, kShared);
  world.Turns(2);
  EXPECT_FALSE(world.Answered(reader, before).has_value()) << "a lease, nothing more";
  EXPECT_EQ(Release(lease, kMore).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, before).code, Code::kWouldDeadlock) << "the swap waits for piece 2";
  const Answer refused = world.Acquire(reader, 1, kShared, kPiece, kPiece);
  EXPECT_EQ(refused.code, Code::kWouldDeadlock);
  EXPECT_NE(refused.detail.find("swap_out of session"), std::string::npos) << refused.detail;
  world.Release(reader, World::LeaseOf(part));
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Check(reader, 1, 2, kShared), Code::kOk);
}

TEST_F(UnfinishedSwaps, ThatEndTooLateAreNamedWithTheirSession) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t reading = world.Send(reader, Op::kAcquire, {{1, kPiece, kPiece, 0}}, kShared);
  world.Turns(5);
  world.Advance(std::chrono::minutes(2));
  const Answer refused = world.Wait(reader, reading);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_NE(refused.detail.find("tensor 0x1"), std::string::npos) << refused.detail;
  const std::string session = "swap_out of session " + std::to_string(static_cast<uint64_t>(writer));
  EXPECT_NE(refused.detail.find(session), std::string::npos) << refused.detail;
}

TEST_F(UnfinishedSwaps, AreNotHeldUpByTheClaimOfAWriterThatWaitsForThem) {
  const Answer reading = world.Acquire(reader, 1, kShared, 2 * kPiece, kPiece);
  const SessionId second = world.OpenSession(job);
  const uint64_t waiting = world.Send(second, Op::kAcquire, {{1, 0, 0, 0}}, kShared | proto::kFlagWrite);
  world.Turns(2);
  const uint64_t first = world.Send(writer, Op::kAcquire, {{1, 0, kPiece, 0}}, kShared | proto::kFlagWrite);
  world.Turns(2);
  ASSERT_FALSE(world.Answered(writer, first).has_value()) << "the other writer came first";
  world.Release(reader, World::LeaseOf(reading));
  const Answer whole = world.Wait(second, waiting);
  world.Release(second, World::LeaseOf(whole), proto::kFlagUntouched);
  EXPECT_EQ(Release(World::LeaseOf(world.Wait(writer, first)), kMore).code, Code::kOk);
  const uint64_t later = world.Send(second, Op::kAcquire, {{1, 0, 0, 0}}, kShared | proto::kFlagWrite);
  world.Turns(2);
  EXPECT_FALSE(world.Answered(second, later).has_value());
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Wait(second, later).code, Code::kOk);
}

TEST_F(UnfinishedSwaps, OfTwoSessionsComeOneAfterTheOther) {
  const uint64_t mine = Lease(0, kPiece);
  const Answer theirs = world.Acquire(reader, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  ASSERT_EQ(theirs.code, Code::kOk);
  EXPECT_EQ(Release(mine, kMore).code, Code::kOk);
  const Answer refused = world.Ask(reader, Op::kRelease, {{0, 0, kSize, World::LeaseOf(theirs)}}, kMore);
  EXPECT_EQ(refused.code, Code::kWouldDeadlock) << "one of them has to come second";
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u) << "the lease has ended";
  const uint64_t second = world.Send(reader, Op::kAcquire, {{1, 0, kPiece, 0}}, kShared | proto::kFlagWrite);
  world.Turns(3);
  EXPECT_FALSE(world.Answered(reader, second).has_value());
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  const Answer granted = world.Wait(reader, second);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  world.Release(reader, World::LeaseOf(granted), proto::kFlagUntouched);
  world.EndSession(reader, "killed");
  const SessionId third = world.OpenSession(job);
  EXPECT_EQ(world.Check(third, 1, 2, kShared), Code::kOk) << "the first one wrote every piece last";
}

TEST_F(UnfinishedSwaps, AreNotEndedByAStepOfTheirSession) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  world.Wait(writer, world.SendArgument(writer, Op::kStep, UINT64_MAX));
  EXPECT_NE(world.Acquire(reader, 1, kShared | proto::kFlagNoWait).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
}

TEST_F(UnfinishedSwaps, OfAPartThatEndedNeedNoStep) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  EXPECT_EQ(Release(Lease(kPiece, kPiece), 0, 0, 2 * kPiece).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, OfOneRangeNeedNoStep) {
  EXPECT_EQ(Release(Lease(0, kPiece), 0, 0, kPiece).code, Code::kOk);
  world.EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(UnfinishedSwaps, OfAllPiecesEndTheUpdatesOfOthers) {
  const Answer slice = world.Acquire(reader, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  EXPECT_EQ(world.Release(reader, World::LeaseOf(slice)).code, Code::kOk);
  for (const uint32_t piece : {0u, 1u, 2u}) EXPECT_EQ(Write(piece, piece == 2 ? 0 : kMore).code, Code::kOk);
  world.EndSession(reader, "killed");
  const SessionId third = world.OpenSession(job);
  EXPECT_EQ(world.Check(third, 1, 2, kShared), Code::kOk);
}

// A turn has work to break one of them, and none as long as a crowd that died before has leases to end.
class UnfinishedSwapsOfTheDead : public UnfinishedSwaps {
 protected:
  UnfinishedSwapsOfTheDead()
      : UnfinishedSwaps({.submit = 4, .teardown = 3}),
        third(std::exchange(writer, world.OpenSession(job))),  // The writer has created nothing.
        crowd(world.OpenSession(job)) {
    world.Put(third, 3, 100, 1, kShared);
    const std::vector<proto::RequestItem> items(60, {3, 0, 0, 0});
    EXPECT_EQ(world.Ask(crowd, Op::kAcquire, items, kShared).code, Code::kOk);
  }
  void KillBehindTheCrowd(SessionId session) {
    world.EndSession(crowd, "killed");
    world.EndSession(session, "killed");
  }
  uint64_t TornCount() { return world.Job(job).torn_count; }
  void TurnsUntilTorn(uint64_t count) {
    for (int turns = 0; TornCount() < count && turns < 200; ++turns) world.Turn();
    EXPECT_EQ(TornCount(), count);
  }
  uint64_t SendRead(SessionId session, uint64_t tensor, uint64_t length = 0) {
    return world.Send(session, Op::kAcquire, {{tensor, 0, length, 0}}, kShared);
  }
  uint64_t SendRewrite(SessionId session, uint64_t tensor, uint64_t length = 0) {
    return world.Send(session, Op::kAcquire, {{tensor, 0, length, 0}},
                      kShared | proto::kFlagWrite | proto::kFlagDiscard);
  }

  SessionId third;
  SessionId crowd;
};

TEST_F(UnfinishedSwapsOfTheDead, InSomeTensorsEndOneAfterTheOther) {
  world.PutEach(third, 4, 5, kSize, kShared);
  std::map<uint64_t, uint64_t> asked;  // By tensor.
  for (const uint64_t id : {1, 4, 5}) {
    ASSERT_EQ(Release(Lease(0, kPiece, id), kMore, 0, 2 * kPiece).code, Code::kOk);
    asked[id] = SendRead(reader, id);
  }
  ASSERT_EQ(world.Acquire(third, 1, kShared, 2 * kPiece, kPiece).code, Code::kOk);
  KillBehindTheCrowd(writer);
  const uint64_t nested = SendRead(third, 1, kPiece);
  const uint64_t rewriting = SendRewrite(third, 1, 2 * kPiece);
  world.Turns(5);
  EXPECT_EQ(TornCount(), 0u) << "all of them stand";
  for (const auto& [id, sequence] : asked) EXPECT_FALSE(world.Answered(reader, sequence).has_value()) << id;
  TurnsUntilTorn(1);
  EXPECT_TRUE(world.Answered(reader, asked[5]).has_value()) << "the newest is broken first";
  TurnsUntilTorn(2);
  EXPECT_TRUE(world.Answered(reader, asked[4]).has_value());
  EXPECT_FALSE(world.Answered(reader, asked[1]).has_value());
  for (const uint64_t sequence : {nested, rewriting}) EXPECT_FALSE(world.Answered(third, sequence).has_value());
  TurnsUntilTorn(3);
  world.Turns(3);
  for (const auto& [id, sequence] : asked) {
    ASSERT_TRUE(world.Answered(reader, sequence).has_value()) << id;
    EXPECT_EQ(world.Answered(reader, sequence)->code, Code::kTorn) << id;
  }
  EXPECT_EQ(world.Wait(third, nested).code, Code::kTorn) << "the dead wait for nothing";
  EXPECT_EQ(world.Release(third, World::LeaseOf(world.Wait(third, rewriting))).code, Code::kOk);
  EXPECT_EQ(TornCount(), 2u) << "what was to be swapped is rewritten";
  for (const uint64_t id : {4, 5}) {
    const Answer granted = world.Wait(reader, SendRewrite(reader, id, 2 * kPiece));
    EXPECT_EQ(world.Release(reader, World::LeaseOf(granted)).code, Code::kOk) << id;
  }
  EXPECT_EQ(TornCount(), 0u);
}

TEST_F(UnfinishedSwapsOfTheDead, OfTwoSessionsInOneTensorEndAsOne) {
  const Answer part = world.Acquire(reader, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  ASSERT_EQ(part.code, Code::kOk);
  ASSERT_EQ(Write(0, kMore).code, Code::kOk);
  KillBehindTheCrowd(writer);
  EXPECT_EQ(world.Ask(reader, Op::kRelease, {{0, 0, kSize, World::LeaseOf(part)}}, kMore).code, Code::kOk)
      << "a dead session writes no piece last";
  EXPECT_EQ(TornCount(), 1u) << "what it left is broken before what comes after it";
  const uint64_t reading = SendRead(third, 1);
  const uint64_t rewriting = SendRewrite(third, 1);
  world.EndSession(reader, "killed");
  world.Turns(3);
  EXPECT_FALSE(world.Answered(third, rewriting).has_value()) << "the other one still stands";
  EXPECT_EQ(world.Wait(third, reading).code, Code::kTorn);
  const Answer granted = world.Wait(third, rewriting);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  EXPECT_EQ(TornCount(), 1u) << "it is torn once";
  world.Fill(granted.spans, 1, 9);
  EXPECT_EQ(world.Release(third, World::LeaseOf(granted)).code, Code::kOk);
  EXPECT_EQ(TornCount(), 0u);
  EXPECT_EQ(world.Check(third, 1, 9, kShared), Code::kOk);
  writer = world.OpenSession(job);  // In the place of one of them: it may have as many as any other.
  for (const uint64_t id : {10, 11, 12}) {
    world.Put(writer, id, 2 * kPiece, 1, kShared);
    EXPECT_EQ(Release(Lease(0, kPiece, id), kMore, 0, 2 * kPiece).code, Code::kOk) << id;
  }
}

TEST_F(UnfinishedSwapsOfTheDead, CountAsRewrittenWhatWasSealedBeforeTheyWereBroken) {
  const Answer part = world.Acquire(reader, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  ASSERT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  KillBehindTheCrowd(writer);
  ASSERT_EQ(world.Release(reader, World::LeaseOf(part)).code, Code::kOk);
  TurnsUntilTorn(1);
  const Answer rest = world.Wait(third, SendRewrite(third, 1, kPiece));
  ASSERT_EQ(rest.code, Code::kOk) << rest.detail;
  EXPECT_EQ(world.Release(third, World::LeaseOf(rest)).code, Code::kOk);
  EXPECT_EQ(TornCount(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
