// Manifests of named jobs: persisted, kept, resumed, dropped.
#include <gtest/gtest.h>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

TEST(PersistRefused, WithoutADataDirectoryItIsDeniedByName) {
  World world;
  const SessionId session = world.Open();
  const Answer refused = world.Ask(session, Op::kPersist, {});
  EXPECT_EQ(refused.code, Code::kDenied);
  EXPECT_NE(refused.detail.find("set daemon.data_directory"), std::string::npos);
  const Status resumed = world.engine->OpenJob(JobId{50}, kResume);
  EXPECT_EQ(resumed.error().code, Code::kDenied);
}

TEST_F(Persist, AnswersAtItsDeadlineThoughTheStoreDoesNot) {
  world.Put(session, 1, kPiece, 1, kShared);
  world.manifests.SetDelay(20'000);  // Turns: more than both requests wait.
  const base::TimePoint asked = world.now;
  const Answer late = PersistAll();
  EXPECT_EQ(late.code, Code::kTimeout);
  EXPECT_NE(late.detail.find("may be committed yet"), std::string::npos) << late.detail;
  EXPECT_LE(world.now - asked, EngineOptions{}.deadline_default + std::chrono::seconds(1));
  world.manifests.SetDelay(0);
  EXPECT_EQ(PersistAll().code, Code::kTimeout) << "the first is still at the store";
  world.Turns(20'000);
  EXPECT_EQ(PersistAll().code, Code::kOk);
}

TEST_F(Persist, AResumedJobHasItsTensorsBack) {
  world.Put(session, 1, 3 * kPiece + 777, 1, kShared);
  world.Put(session, 2, 5000, 2, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
  EXPECT_EQ(world.Check(session, 2, 2, kShared), Code::kOk);
}

TEST_F(Persist, ASessionsOwnTensorsAreInheritedByTheSessionsThatResume) {
  world.Put(session, 1, 5000, 1);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
  const SessionId other = world.OpenSession(job);
  EXPECT_EQ(world.Check(other, 1, 1), Code::kOk);
}

TEST_F(Persist, WhatWasInheritedIsFlushedAndDroppedWithTheSessionsOwn) {
  world.Put(session, 1, 2 * kPiece, 1);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Rewrite(session, 1, 2).code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  EXPECT_EQ(world.Job(job).dirty_bytes, 0u);
  EXPECT_EQ(world.Ask(session, Op::kDrop, {}).value, 2 * kPiece);
  EXPECT_EQ(world.Check(session, 1, 2), Code::kOk);
}

TEST_F(Persist, AFlushDoesNotWaitForWhatOthersWriteOfTheInherited) {
  world.Put(session, 1, kPiece, 1);
  world.Put(session, 2, kPiece, 2);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  const Answer writing = world.Acquire(session, 2, proto::kFlagWrite);
  const uint64_t alone = world.Send(session, Op::kFlush, {});
  world.Turns(10);
  EXPECT_FALSE(world.Answered(session, alone).has_value()) << "it is nobody else's";
  const SessionId other = world.OpenSession(job);
  EXPECT_EQ(world.Rewrite(other, 1, 3).code, Code::kOk);
  EXPECT_EQ(world.Ask(other, Op::kFlush, {}).code, Code::kOk);
  EXPECT_EQ(world.Job(job).dirty_bytes, 0u);
  world.Release(session, World::LeaseOf(writing));
  EXPECT_EQ(world.Wait(session, alone).code, Code::kOk);
}

TEST_F(Persist, AJobIsFlushedWithoutAnySession) {
  world.Put(session, 1, 2 * kPiece, 1);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Rewrite(session, 1, 2).code, Code::kOk);
  world.Put(session, 2, 5000, 2, kShared);
  world.EndSession(session, "gone");
  world.Turns(3);
  EXPECT_NE(world.Job(job).dirty_bytes, 0u);
  ASSERT_TRUE(world.engine->FlushJob(job, 7, 1000));
  EXPECT_EQ(world.Wait(kInternalSession, 7).code, Code::kOk);
  EXPECT_EQ(world.Job(job).dirty_bytes, 0u);
  EXPECT_EQ(world.engine->FlushJob(JobId{99}, 8, 1000).error().code, Code::kNotFound);
}

TEST_F(Persist, KeysAndStepsComeBack) {
  const uint64_t id = world.Wait(session, world.SendText(session, "weights")).value;
  world.Put(session, id, 5000, 1, kShared);
  world.Wait(session, world.SendArgument(session, Op::kStep, 12));
  EXPECT_EQ(PersistAll().code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.engine->Tensors(job, 0, 10).tensors.at(0).key, "weights");
  EXPECT_EQ(world.Wait(session, world.SendArgument(session, Op::kStep, UINT64_MAX)).value, 13u);
}

TEST_F(Persist, WhatWasWrittenAfterwardsDoesNotReachTheManifest) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_EQ(world.Rewrite(session, 1, 2, kShared).code, Code::kOk);
  EXPECT_EQ(world.Flush(session, 1, kShared).code, Code::kOk);
  EXPECT_EQ(world.Check(session, 1, 2, kShared), Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk) << "one whole manifest, not a mixture";
}

TEST_F(Persist, TheExtentsOfTheOldManifestGoWithTheNext) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_EQ(world.Rewrite(session, 1, 2, kShared).code, Code::kOk);
  EXPECT_EQ(world.Flush(session, 1, kShared).code, Code::kOk);
  EXPECT_EQ(world.extents.total().live, 4 * kPiece) << "old and new";
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_EQ(world.extents.total().live, 2 * kPiece);
}

TEST_F(Persist, ManifestsReplaceEachOtherWhole) {
  world.Put(session, 1, 5000, 1, kShared);
  world.Put(session, 2, 5000, 2, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kPersist, {{2, 0, 0, 0}}, kShared).code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kNotFound);
  EXPECT_EQ(world.Check(session, 2, 2, kShared), Code::kOk);
}

TEST_F(Persist, AFailedCommitIsTypedAndLeavesTheOldManifest) {
  world.Put(session, 1, 5000, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_EQ(world.Rewrite(session, 1, 2, kShared).code, Code::kOk);
  world.manifests.FailNext(Code::kIoError, "the disk said no");
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_NE(refused.detail.find("the disk said no"), std::string::npos);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
}

TEST_F(Persist, ItsWorstCaseIsReservedFirst) {
  World small({.device_blocks = 4, .manifests = true});
  const SessionId one = small.Open(kNamed);
  small.Put(one, 1, 3 * kPiece, 1, kShared);
  EXPECT_EQ(small.Ask(one, Op::kPersist, {}).code, Code::kOk);
  EXPECT_EQ(small.Rewrite(one, 1, 2, kShared).code, Code::kOk);
  const Answer refused = small.Ask(one, Op::kPersist, {});
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(refused.error.requested, 3 * kPiece);
  EXPECT_NE(refused.detail.find("held only by the last manifest"), std::string::npos) << refused.detail;
  const size_t at_once = refused.detail.find("tierctl job remove --purge");
  const size_t by_restart = refused.detail.find("restart tierd, which ends all jobs");
  EXPECT_LT(at_once, by_restart) << refused.detail;
  EXPECT_EQ(small.manifests.commit(), 1u);
}

TEST_F(Persist, OnADrainingDeviceIsRefusedForTheDrain) {
  world.Put(session, 1, 5000, 1, kShared);
  ASSERT_TRUE(world.engine->SetDeviceDraining(0, true).has_value());
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(refused.error.available, 0u);
  EXPECT_NE(refused.detail.find("is draining and takes nothing"), std::string::npos) << refused.detail;
}

TEST(PersistOfManyPieces, IsCountedTurnByTurnAndEachTensorOnce) {
  constexpr uint64_t kPieces = 2 * kLookMax + 100;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
               .transfers = {.device_count = 2},
               .device_blocks = kPieces - 4,
               .manifests = true});
  const SessionId session = world.Open(kNamed);
  ASSERT_EQ(world.CreateRange(session, 1, kPieces * kPiece, 0, kPiece).code, Code::kOk);
  ASSERT_TRUE(world.engine->SetDeviceDraining(1, true).has_value());
  world.Turns(3);
  const uint64_t asked = world.Send(session, Op::kPersist, std::vector<proto::RequestItem>(100, {1, 0, 0, 0}));
  world.Turn();
  EXPECT_FALSE(world.Answered(session, asked).has_value()) << "it is more than a turn looks at";
  world.Turns(3);
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kNoSpace);
  EXPECT_EQ(world.Answered(session, asked)->error.requested, kPieces * kPiece);
}

TEST_F(Persist, WhatIsNamedTwiceIsPersistedOnce) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(world.Ask(session, Op::kPersist, {{1, 0, 0, 0}, {1, 0, 0, 0}}, kShared).code, Code::kOk);
  world.Put(session, 2, 5000, 2);
  EXPECT_EQ(world.Ask(session, Op::kPersist, {{2, 0, 0, 0}, {2, 0, 0, 0}}).code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 2, 2), Code::kOk);
}

TEST_F(Persist, TwoSessionsTensorsOfOneIdCannotBePersistedTogether) {
  const SessionId other = world.OpenSession(job);
  world.Put(session, 1, 5000, 1);
  world.Put(other, 1, 5000, 2);
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_EQ(refused.error.tensor, 1u);
}

TEST_F(Persist, PersistsOfOneJobFollowEachOther) {
  world.manifests.SetDelay(5);
  world.Put(session, 1, 5000, 1, kShared);
  const uint64_t first = world.Send(session, Op::kPersist, {});
  const uint64_t second = world.Send(session, Op::kPersist, {});
  EXPECT_EQ(world.Wait(session, first).value, 1u);
  EXPECT_EQ(world.Wait(session, second).value, 2u);
}

TEST_F(Persist, AWriterDuringTheCommitChangesNothingOfIt) {
  world.manifests.SetDelay(8);
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  const uint64_t persisting = world.Send(session, Op::kPersist, {});
  world.Turns(4);
  EXPECT_EQ(world.Rewrite(session, 1, 2, kShared).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, persisting).code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
}

TEST_F(Persist, AStoppingDaemonWaitsForWhatIsBeingCommitted) {
  world.manifests.SetDelay(30);
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  const uint64_t persisting = world.Send(session, Op::kPersist, {});
  world.Turns(10);
  EXPECT_FALSE(world.Answered(session, persisting).has_value());
  world.engine->StartDrain("tierd is stopping");
  EXPECT_FALSE(world.engine->idle());
  const Answer committed = world.Wait(session, persisting);
  EXPECT_EQ(committed.code, Code::kOk) << committed.detail;
  EXPECT_EQ(committed.value, 1u);
  world.Turns(3);
  EXPECT_TRUE(world.engine->idle());
}

TEST_F(Persist, AManifestWithoutATensorIsAManifestToo) {
  world.Wait(session, world.SendArgument(session, Op::kStep, 7));
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const SessionId ephemeral = world.Open({.key = kNamed.key});
  EXPECT_EQ(world.Ask(ephemeral, Op::kPersist, {}).code, Code::kDenied);
  world.EndSession(ephemeral, "done");
  world.Turns(5);
  EXPECT_TRUE(world.manifests.Load(kNamed.key).has_value());
  const SessionId other = world.Open({.key = "1000/notebook"});
  EXPECT_EQ(world.Ask(other, Op::kPersist, {}).code, Code::kOk);
  world.EndSession(other, "done");
  world.Turns(5);
  EXPECT_FALSE(world.manifests.Load("1000/notebook").has_value());
}

TEST_F(Persist, OfAWriterFinishesWhatItHasChanged) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  const SessionId writer = world.OpenSession(job);
  const Answer slice = world.Acquire(writer, 1, kShared | proto::kFlagWrite, 0, kPiece);
  world.Fill(slice.spans, 1, 1);
  world.Release(writer, World::LeaseOf(slice));
  EXPECT_EQ(world.Ask(writer, Op::kPersist, {}).code, Code::kOk);
  world.Acquire(writer, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
}

TEST_F(Persist, MixedGenerationsAreNotCommittedThoughAllOfThemAreOnSsd) {
  world.PutOnSsd(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  const SessionId writer = world.OpenSession(job);
  const Answer slice = world.Acquire(writer, 1, kShared | proto::kFlagWrite, 0, kPiece);
  world.Fill(slice.spans, 1, 2);
  world.Release(writer, World::LeaseOf(slice));
  EXPECT_EQ(world.Flush(session, 1, kShared).code, Code::kOk);
  world.Acquire(writer, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  world.EndSession(writer, "killed");
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kTorn) << "piece 0 is of the new step, piece 1 of the old one";
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_EQ(world.Flush(session, 1, kShared).code, Code::kTorn);
  EXPECT_EQ(world.manifests.commit(), 1u);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk) << "the last whole manifest";
}

TEST_F(Persist, ATensorThatMixesWhilePersistWaitsForItsWriterIsNotCommitted) {
  world.PutOnSsd(session, 1, 2 * kPiece, 1, kShared);
  const SessionId writer = world.OpenSession(job);
  const Answer slice = world.Acquire(writer, 1, kShared | proto::kFlagWrite, 0, kPiece);
  world.Release(writer, World::LeaseOf(slice));
  world.Acquire(writer, 1, kShared | proto::kFlagWrite, kPiece, kPiece);
  const uint64_t persisting = world.Send(session, Op::kPersist, {});
  world.Turns(10);
  EXPECT_FALSE(world.Answered(session, persisting).has_value());
  world.EndSession(writer, "killed");
  EXPECT_EQ(world.Wait(session, persisting).code, Code::kTorn);
}

TEST_F(Persist, ACorruptCopyIsNotCommitted) {
  world.PutOnSsd(session, 1, 2 * kPiece, 1, kShared);
  world.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kCorrupt, 0}, 2);
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kCorrupt);
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_EQ(world.manifests.commit(), 0u);
}

TEST_F(Persist, OfTwoCorruptCopiesTheOtherIsToldWhereOneIsFreedMeanwhile) {
  for (const uint64_t tensor : {1, 2}) {
    world.PutOnSsd(session, tensor, kPiece, tensor, kShared);
    world.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kCorrupt, 0}, 2);
    EXPECT_EQ(world.Check(session, tensor, tensor, kShared), Code::kCorrupt);
  }
  world.Put(session, 3, kPiece, 3, kShared);
  world.transfers.Hold();
  const uint64_t flushing = world.Send(session, Op::kFlush, {{1, 0, 0, 0}, {2, 0, 0, 0}, {3, 0, 0, 0}}, kShared);
  world.Turns(2);
  EXPECT_EQ(world.Free(session, 1, kShared).code, Code::kOk);
  world.transfers.Release();
  const Answer refused = world.Wait(session, flushing);
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_EQ(refused.error.tensor, 2u);
}

TEST_F(Persist, NamesNoExtentThatADeviceFailedToRead) {
  world.Put(session, 1, kPiece, 1, kShared);
  world.PutOnSsd(session, 2, 2 * kPiece, 2, kShared);
  world.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kDeviceError, 5}, 2);
  EXPECT_EQ(world.Acquire(session, 2, kShared).code, Code::kIoError);
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_EQ(refused.error.tensor, 2u);
  EXPECT_NE(refused.detail.find("tensor 0x2"), std::string::npos) << refused.detail;
  EXPECT_TRUE(world.manifests.shared_contents()->empty());
  EXPECT_EQ(world.Check(session, 2, 2, kShared), Code::kOk) << "the device reads again";
  EXPECT_EQ(PersistAll().code, Code::kOk);
}

TEST_F(Persist, TheNextDaemonTakesTheManifestsExtentsBeforeAnythingElse) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  NextDaemon next(world);
  EXPECT_EQ(next.extents.total().live, 2 * kPiece);
  ASSERT_TRUE(next.engine->OpenJob(JobId{1}, kResume).has_value());
  next.Turns(2);
  ASSERT_TRUE(next.engine->OpenSession(SessionId{2}, JobId{1}).has_value());
  const proto::RequestItem item{1, 0, 0, 0};
  next.engine->Submit(SessionId{2},
                      {.sequence = 1, .op = Op::kAcquire, .flags = kShared, .items = {&item, 1}, .text = {}});
  base::TimePoint now;
  for (int turn = 0; turn < 10; ++turn) {
    now = now + std::chrono::milliseconds(1);
    next.engine->Turn(now);
    next.engine->CheckInvariants();
  }
  const Answer& granted = next.sink.answers.at({2, 1});
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  uint64_t offset = 0;
  for (const proto::SpanRecord& span : granted.spans) {
    const std::byte* at = next.windows.address(WindowIndex{span.window}) + span.offset;
    for (uint64_t i = 0; i < span.length; i += 4093) ASSERT_EQ(at[i], PatternByte(1, 1, offset + i));
    offset += span.length;
  }
  EXPECT_EQ(offset, 2 * kPiece);
}

TEST_F(Persist, AnEphemeralJobOfTheNextDaemonDoesNotTakeTheManifestWithIt) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  NextDaemon next(world);
  ASSERT_TRUE(next.engine->OpenJob(JobId{1}, {.key = kNamed.key}).has_value());
  ASSERT_TRUE(next.engine->OpenSession(SessionId{2}, JobId{1}).has_value());
  next.engine->EndSession(SessionId{2}, Code::kDisconnected, "done", JobId{1});
  base::TimePoint now;
  for (int turn = 0; turn < 5; ++turn) next.engine->Turn(now = now + std::chrono::milliseconds(1));
  next.engine->CheckInvariants();
  EXPECT_EQ(next.extents.total().live, 2 * kPiece);
  ASSERT_TRUE(next.engine->OpenJob(JobId{3}, kResume).has_value());
  next.Turns(5);
  EXPECT_TRUE(next.sink.opened.at(3).has_value());
}

TEST_F(Persist, AManifestIsReplacedOnlyByARunThatResumedItOrReplacesIt) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  JobOptions replace_existing = kNamed;
  replace_existing.replace_existing = true;
  for (const JobOptions& options : {kNamed, kResume, replace_existing}) {
    world.engine->CloseJob(job, "done", false);
    world.Turns(5);
    job = world.OpenJob(options);
    session = world.OpenSession(job);
    world.Put(session, 2, kPiece, 2, kShared | proto::kFlagReplace);
    const Answer persisted = PersistAll();
    EXPECT_EQ(persisted.code, options.resume || options.replace_existing ? Code::kOk : Code::kDenied)
        << persisted.detail;
  }
}

TEST_F(Persist, WhatTheManifestAloneHasIsNotReplacedByARunThatAttaches) {
  world.Put(session, 1, kPiece, 1);
  world.Put(session, 2, kPiece, 2, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  const SessionId other = world.OpenSession(job);
  world.EndSession(session, "left");
  session = other;
  EXPECT_EQ(PersistAll().code, Code::kOk) << "its run goes on, with what is left of it";
  world.Put(session, 3, kPiece, 3);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.EndSession(session, "left");
  session = world.OpenSession(job);
  world.Put(session, 4, kPiece, 4);
  const Answer refused = PersistAll();
  EXPECT_EQ(refused.code, Code::kDenied);
  EXPECT_NE(refused.detail.find("mode resume"), std::string::npos) << refused.detail;
  Reopen();
  EXPECT_EQ(world.Check(session, 3, 3), Code::kOk);
  EXPECT_EQ(world.Check(session, 2, 2, kShared), Code::kOk);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.EndSession(session, "left");
  session = world.OpenSession(job);
  EXPECT_EQ(world.Check(session, 3, 3), Code::kOk) << "inherited, so it is the job's";
  EXPECT_EQ(PersistAll().code, Code::kOk);
}

TEST_F(Persist, AManifestOfTheSharedNamespaceIsReplacedByWhoAttaches) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.EndSession(session, "left");
  session = world.OpenSession(job);
  EXPECT_EQ(PersistAll().code, Code::kOk);
}

TEST_F(Persist, OneThatIsCommittedBehindTheLastSessionsBackIsKeptForResume) {
  EndTheLastSessionWhileItPersists();
  world.Turns(10);
  session = world.OpenSession(job);
  EXPECT_EQ(PersistAll().code, Code::kDenied);
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
}

TEST_F(Persist, OneThatIsCommittedBehindTheLastSessionIsKeptFromWhoHasComeMeanwhile) {
  EndTheLastSessionWhileItPersists();
  session = world.OpenSession(job);
  EXPECT_TRUE(world.Job(job).persisting);
  world.Turns(10);
  EXPECT_EQ(PersistAll().code, Code::kDenied);
}

TEST_F(Persist, APersistThatFailsChangesNothingOfWhatIsKept) {
  world.Put(session, 1, kPiece, 1);
  world.Put(session, 2, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.manifests.FailNext(Code::kIoError, "the disk is gone");
  EXPECT_EQ(world.Ask(session, Op::kPersist, {{2, 0, 0, 0}}, kShared).code, Code::kIoError);
  world.EndSession(session, "left");
  session = world.OpenSession(job);
  EXPECT_EQ(PersistAll().code, Code::kDenied);
}

TEST_F(Persist, ADamagedManifestIsReportedAndNeverReplayed) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())["1000/training"][70] ^= std::byte{1};
  NextDaemon next(world);
  const Status resumed = next.engine->OpenJob(JobId{1}, kResume);
  ASSERT_FALSE(resumed.has_value());
  EXPECT_EQ(resumed.error().code, Code::kCorrupt);
  EXPECT_FALSE(next.engine->OpenSession(SessionId{2}, JobId{1}).has_value()) << "nothing of the job is left";
}

TEST_F(Persist, AManifestThatNamesAnExtentTwiceIsNotBelieved) {
  world.Put(session, 1, kPiece, 1, kShared);
  world.Put(session, 2, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  auto& bytes = (*world.manifests.shared_contents())["1000/training"];
  Manifest manifest = *DecodeManifest(bytes);
  manifest.tensors[1].pieces = manifest.tensors[0].pieces;
  bytes = EncodeManifest(manifest);
  NextDaemon next(world);
  EXPECT_EQ(next.engine->OpenJob(JobId{1}, kResume).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace tier::tiering::testing
