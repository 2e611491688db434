// A device is emptied of what only manifests of closed jobs hold.
#include <cerrno>
#include <cstring>
#include <memory>

#include <gmock/gmock.h>

#include "tests/unit/tiering/manifest_move_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using storage::Direction;
using storage::TransferOutcome;
using ::testing::HasSubstr;

TEST_F(ManifestMoveTest, AnIdleEngineMovesWhatAClosedJobPersisted) {
  Leave();
  const uint64_t live = world_->extents.total().live;
  Drain(0);
  const base::TimePoint begin = world_->now;
  while (Live(0) != 0) {
    ASSERT_LE(world_->now - begin, seconds(2));
    if (world_->Turn()) continue;
    const auto next = world_->engine->NextDeadline();
    ASSERT_TRUE(next.has_value()) << "nothing would wake it";
    world_->Advance(std::max<base::Duration>(*next - world_->now, milliseconds(0)));
  }
  EXPECT_EQ(Live(1), live) << "nothing is there twice";
  ExpectListOfManifest(*world_);
  ExpectWholeWithout(0);
  EXPECT_EQ(CheckAll(*world_, world_->OpenSession(world_->OpenJob(kResume))), Code::kOk) << "of this daemon too";
  ExpectRest();
}

// It stays while the daemon runs: clients' windows would wait behind a registration of it that is refused.
TEST_F(ManifestMoveTest, TheMemoryForMovesIsNotPinned) {
  Leave();
  Drain(0);
  ASSERT_TRUE(Empties(0));
  EXPECT_EQ(world_->transfers.pin(WindowIndex{world_->windows.windows_max()}), storage::Pin::kNo);
}

TEST_F(ManifestMoveTest, OnlyThePlacesChange) {
  const JobId id = world_->OpenJob(kNamed);
  const SessionId session = world_->OpenSession(id);
  const SessionId other = world_->OpenSession(id);
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) world_->Put(session, tensor, kSize, tensor, kShared);
  world_->Put(session, 9, kSize, 9, kShared | proto::kFlagSharded);
  world_->Put(session, 10, kPageSize, 10);  // Its own.
  const uint64_t key = world_->SendText(session, "model.layer");
  ASSERT_EQ(world_->Wait(session, key).code, Code::kOk);
  const uint64_t named = world_->Answered(session, key)->value;
  world_->Put(session, named, kPageSize, 11, kShared);
  world_->Put(session, 12, kSize, 12, kShared);
  // Another session is in the middle of an update of it.
  const Answer part = world_->Acquire(other, 12, kShared | proto::kFlagWrite, 0, kPageSize);
  ASSERT_EQ(part.code, Code::kOk) << part.detail;
  world_->Fill(part.spans, 12, 12);
  ASSERT_EQ(world_->Release(other, World::LeaseOf(part)).code, Code::kOk);
  ASSERT_EQ(world_->Ask(session, Op::kPersist, {}).code, Code::kOk);
  world_->engine->CloseJob(id, "done", false);
  Settle();
  const Manifest before = Stored();
  Drain(1);
  ASSERT_TRUE(Empties(1));
  const Manifest after = Stored();
  EXPECT_EQ(after.step, before.step);
  ASSERT_EQ(after.keys.size(), 1u);
  EXPECT_EQ(after.keys[0].id, before.keys[0].id);
  EXPECT_EQ(after.keys[0].key, "model.layer");
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  uint32_t flags = 0;
  for (size_t i = 0; i < after.tensors.size(); ++i) {
    const auto& now = after.tensors[i];
    const auto& then = before.tensors[i];
    EXPECT_EQ(0, std::memcmp(&now.record, &then.record, sizeof(now.record)));
    flags |= now.record.flags;
    ASSERT_EQ(now.pieces.size(), then.pieces.size());
    for (size_t k = 0; k < now.pieces.size(); ++k) {
      EXPECT_EQ(now.pieces[k].crc, then.pieces[k].crc);
      EXPECT_EQ(now.pieces[k].generation, then.pieces[k].generation);
      EXPECT_EQ(now.pieces[k].device, 0);
      if (then.pieces[k].device == 0) {
        EXPECT_TRUE(ExtentOf(now.pieces[k]) == ExtentOf(then.pieces[k]));
      }
    }
  }
  EXPECT_EQ(flags, proto::kManifestTorn | proto::kManifestSharded);
}

TEST_F(ManifestMoveTest, EveryManifestLeavesOneAfterTheOther) {
  const JobOptions second{.key = "1000/second", .named = true};
  Leave(kNamed, 4);
  Leave(second, 3);
  Drain(0);
  ASSERT_TRUE(Empties(0));
  ExpectWholeWithout(0, kResume, 4);
  ExpectWholeWithout(0, {.key = second.key, .named = true, .resume = true}, 3);
}

TEST_F(ManifestMoveTest, ADeviceIsEmptiedOfPiecesAndManifestsAlike) {
  Leave();
  const SessionId session = world_->Open();
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) world_->PutOnSsd(session, tensor, 2 * kPiece, tensor);
  Drain(0);
  ASSERT_TRUE(Empties(0));
  EXPECT_EQ(world_->CheckEach(session, 1, 3), Code::kOk);
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, WhatAnOpenJobHoldsBesideItsPiecesLeavesWhenItIsClosed) {
  const JobId id = world_->OpenJob(kNamed);
  const SessionId session = world_->OpenSession(id);
  for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) world_->Put(session, tensor, kSize, tensor, kShared);
  ASSERT_EQ(world_->Ask(session, Op::kPersist, {}).code, Code::kOk);
  for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) world_->Free(session, tensor, kShared);
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(3)));
  ExpectRest();
  world_->engine->CloseJob(id, "done", false);
  ASSERT_TRUE(Empties(0));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, AJobThatComesBackMeanwhileIsResumedFromTheOldManifest) {
  Leave();
  const uint64_t live = world_->extents.total().live;
  world_->transfers.SetDelay(3, 6);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Written() > 0 && Moving(); }));
  const Error refused = world_->engine->OpenJob(JobId{77}, kResume).error();
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_THAT(refused.message, HasSubstr("being moved"));
  TurnUntil([&] { return !Moving(); });
  world_->Turn();
  const JobId id = world_->OpenJob(kResume);
  EXPECT_EQ(CheckAll(*world_, world_->OpenSession(id)), Code::kOk);
  Drain(0, false);
  Settle();
  EXPECT_EQ(world_->extents.total().live, live) << "what was written in vain is free again";
  Drain(0);
  world_->engine->CloseJob(id, "done", false);
  ASSERT_TRUE(Empties(0));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, AtEveryMomentAJobIsRefusedForNowOrResumedWhole) {
  for (int turns = 0; turns < 40; ++turns) {
    world_ = std::make_unique<World>(TwoDevices());
    Leave();
    world_->manifests.SetDelay(4);
    world_->transfers.SetDelay(0, 2);
    Drain(0);
    world_->Turns(static_cast<uint32_t>(turns));
    Status opened = world_->engine->OpenJob(JobId{77}, kResume);
    for (int wait = 0; wait < 50 && !opened; ++wait) {
      ASSERT_EQ(opened.error().code, Code::kTimeout);
      world_->Turn();
      opened = world_->engine->OpenJob(JobId{77}, kResume);
    }
    ASSERT_TRUE(opened.has_value());
    ASSERT_TRUE(world_->WaitUntilOpened(JobId{77}).has_value());
    ASSERT_EQ(CheckAll(*world_, world_->OpenSession(JobId{77})), Code::kOk) << turns;
    ExpectWhole();
  }
}

TEST_F(ManifestMoveTest, AKillAtAnyMomentLeavesOneWholeManifest) {
  for (uint32_t turns = 0; turns < 40; ++turns) {
    world_ = std::make_unique<World>(TwoDevices());
    Leave();
    world_->manifests.SetDelay(4);
    Drain(0);
    world_->Turns(turns);
    world_->transfers.Crash();
    world_->manifests.Crash();
    ExpectWhole();
  }
}

TEST_F(ManifestMoveTest, AManifestIsDeletedInTheMiddle) {
  Leave();
  world_->transfers.SetDelay(3, 6);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Written() > 0 && Moving(); }));
  EXPECT_EQ(world_->engine->DeleteStoredManifest(kNamed.key).error().code, Code::kTimeout);
  TurnUntil([&] { return !Moving(); });
  world_->Turn();
  EXPECT_TRUE(world_->engine->DeleteStoredManifest(kNamed.key).has_value());
  Settle();
  EXPECT_EQ(world_->extents.total().live, 0u);
  EXPECT_TRUE(world_->manifests.shared_contents()->empty());
}

TEST_F(ManifestMoveTest, AnUndoneDrainGivesUpTheMove) {
  Leave();
  const uint64_t live = world_->extents.total().live;
  const auto before = world_->manifests.shared_contents()->at(kNamed.key);
  world_->transfers.SetDelay(3, 6);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Written() > 0 && Moving(); }));
  Drain(0, false);
  Settle();
  world_->Turns(10);
  EXPECT_EQ(world_->extents.total().live, live);
  EXPECT_EQ(world_->manifests.shared_contents()->at(kNamed.key), before);
  EXPECT_FALSE(Within(seconds(3), [&] { return Live(0) == 0; })) << "it is used again";
  ExpectWhole();
  Drain(0);
  ASSERT_TRUE(Empties(0));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, APieceThatCannotBeReadStaysAndTheOthersLeave) {
  Leave();
  storage::Extent bad{};
  for (const ManifestTensor& tensor : Stored().tensors) {
    if (tensor.pieces[1].device == 0) bad = ExtentOf(tensor.pieces[1]);
  }
  ASSERT_TRUE(bad);
  world_->transfers.FailExtent(bad, TransferOutcome::kDeviceError);
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(5)));
  EXPECT_EQ(Live(0), bad.run.size_bytes());
  ExpectListOfManifest(*world_);
  ExpectRest();
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr("cannot be read"));
  ExpectWhole();
  world_->transfers.HealExtents();
  EXPECT_TRUE(Empties(0, seconds(90))) << "it is tried again";
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, APieceThatIsCorruptStaysAsItIs) {
  Leave();
  uint64_t there = 0;
  for (const ManifestTensor& tensor : Stored().tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      if (piece.device != 0) continue;
      if (there++ == 0) world_->transfers.disk().FlipByte(ExtentOf(piece), 7);
    }
  }
  ASSERT_GT(there, 1u);
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(5)));
  EXPECT_NE(Live(0), 0u);
  EXPECT_LE(Live(0), kPiece);
  ExpectRest();
}

TEST_F(ManifestMoveTest, ADeviceThatGoesInTheMiddleKeepsTheRestUntilItIsBack) {
  Leave();
  world_->transfers.SetDelay(2, 4);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Written() > 0 && Moving(); }));
  world_->transfers.FailDevice(0, EIO);
  EXPECT_FALSE(Empties(0, seconds(20)));
  ExpectRest();
  world_->transfers.HealDevice(0);
  ExpectWhole();
  EXPECT_TRUE(Empties(0, seconds(90)));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, WritesThatFailGoElsewhere) {
  Leave();
  world_->transfers.FailNext({Direction::kWrite, TransferOutcome::kDeviceError, EIO}, 3);
  Drain(0);
  ASSERT_TRUE(Empties(0, seconds(30)));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, WithoutRoomElsewhereItRestsAndGoesOnWhenThereIsSome) {
  Drain(0);
  const JobId filling = world_->OpenJob({.limit_bytes = kArena / 2});
  const SessionId filler = world_->OpenSession(filling);
  for (uint64_t i = 0; i < world_->options.device_blocks - 4; ++i) world_->PutOnSsd(filler, 100 + i, kPiece);
  Drain(0, false);
  Leave();
  Drain(0);
  Settle();
  const bool empty = Within(seconds(10), [&] { return Live(0) == 0; });
  EXPECT_FALSE(empty) << "the test leaves more room than it should";
  ExpectRest();
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr("no room"));
  ExpectWhole();
  world_->engine->CloseJob(filling, "done", false);
  EXPECT_TRUE(Empties(0, seconds(90)));
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, ACommitThatFailsLeavesTheOldManifestAndIsTriedAgain) {
  Leave();
  const uint64_t live = world_->extents.total().live;
  const auto before = world_->manifests.shared_contents()->at(kNamed.key);
  world_->manifests.FailNext(Code::kIoError, "the load fails");
  world_->manifests.FailNext(Code::kNoSpace, "the index is full");
  world_->manifests.FailNext(Code::kNoSpace, "the index is full");
  Drain(0);
  world_->Turns(3);
  EXPECT_EQ(world_->manifests.shared_contents()->at(kNamed.key), before);
  EXPECT_TRUE(Empties(0, seconds(60)));
  EXPECT_EQ(world_->extents.total().live, live);
  ExpectWholeWithout(0);
}

TEST_F(ManifestMoveTest, AManifestThatTurnsOutUnreadableStays) {
  Leave();
  (*world_->manifests.shared_contents())[kNamed.key].back() ^= std::byte{1};
  const uint64_t live = world_->extents.total().live;
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(5)));
  EXPECT_EQ(world_->extents.total().live, live);
  ExpectRest();
}

TEST_F(ManifestMoveTest, WhatWasBrokenAtStartStaysAndIsNamed) {
  Leave();
  (*world_->manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  const uint64_t live = world_->extents.total().live;
  world_ = std::make_unique<World>(Next());
  ASSERT_EQ(world_->extents.total().live, live);
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(5)));
  ExpectRest();
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr(kNamed.key));
}

TEST_F(ManifestMoveTest, NothingLeavesBeforeTheCommitIsSynced) {
  Leave();
  const uint64_t held = Live(0);
  world_->manifests.SetDelay(30);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return world_->manifests.under_way() && Written() != 0; }));
  world_->Turns(10);
  EXPECT_EQ(Live(0), held);
  EXPECT_EQ(world_->engine->OpenJob(JobId{77}, kResume).error().code, Code::kTimeout) << "the store has it";
  ASSERT_TRUE(Empties(0));
}

TEST_F(ManifestMoveTest, AStopEndsTheMove) {
  Leave();
  world_->transfers.SetDelay(3, 6);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Moving(); }));
  world_->engine->StartDrain("tierd is being stopped");
  EXPECT_TRUE(Within(seconds(1), [&] { return world_->engine->idle(); }));
  EXPECT_FALSE(Within(seconds(3), [&] { return !world_->engine->idle(); })) << "no other begins";
  ExpectWhole();
}

// `GetParam()`: the lost commit was made.
class ManifestMoveUnknown : public ManifestMoveTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ManifestMoveUnknown, ACommitOfUnknownOutcomeKeepsBothPlaces) {
  Leave();
  const uint64_t live = world_->extents.total().live;
  const uint64_t held = Live(0);
  world_->manifests.LoseNext(GetParam());
  Drain(0);
  EXPECT_FALSE(Empties(0, seconds(5)));
  EXPECT_EQ(world_->extents.total().live, live + held);
  ExpectRest();
  World next(Next());
  EXPECT_EQ(next.extents.space(0).live, GetParam() ? 0u : held);
  EXPECT_EQ(CheckAll(next, next.OpenSession(next.OpenJob(kResume))), Code::kOk);
}

INSTANTIATE_TEST_SUITE_P(Outcomes, ManifestMoveUnknown, ::testing::Bool(),
                         [](const auto& made) { return made.param ? "Made" : "NotMade"; });

class SmallTurns : public ManifestMoveTest {
 protected:
  static WorldOptions Small() {
    WorldOptions options = TwoDevices();
    options.engine.work.move = 16;
    options.move_blocks = 1;
    return options;
  }
  SmallTurns() : ManifestMoveTest(Small()) {}
};

TEST_F(SmallTurns, AMoveKeepsToTheWorkOfATurn) {
  Leave();
  Drain(0);
  ASSERT_TRUE(Empties(0));
  EXPECT_LE(world_->engine->Snapshot().turn_work_max, world_->options.engine.work.all());
  ExpectWholeWithout(0);
}

// Two units for a tensor that stays when its pieces are looked for, and no turn writes two of them into the new
// manifest.
TEST_F(SmallTurns, ALongManifestIsGoneThroughTurnByTurn) {
  constexpr uint64_t kMany = 500;
  Drain(1);
  const JobId id = world_->OpenJob(kNamed);
  const SessionId session = world_->OpenSession(id);
  for (uint64_t tensor = 1; tensor <= kMany; ++tensor) world_->Put(session, tensor, kPageSize, tensor, kShared);
  ASSERT_EQ(world_->Ask(session, Op::kFlush, {}, kShared).code, Code::kOk);
  Drain(1, false);
  world_->Put(session, kMany + 1, 4 * kPiece, kMany + 1, kShared);
  ASSERT_EQ(world_->Ask(session, Op::kPersist, {}).code, Code::kOk);
  world_->engine->CloseJob(id, "done", false);
  Settle();
  ASSERT_NE(Live(1), 0u);
  Drain(1);
  uint64_t turns = 0;
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return ++turns != 0 && Live(1) == 0; }));
  EXPECT_GE(turns, kMany);
  ExpectWholeWithout(1, kResume, kMany + 1);
}

// Pieces in holes of a device, moved to another one's holes.
class ScatteredMove : public ManifestMoveTest {
 protected:
  static WorldOptions Tiny() {
    WorldOptions options = TwoDevices();
    options.device_blocks = 3;
    options.windows.arena_max_bytes = 4 * kArena;
    return options;
  }
  ScatteredMove() : ManifestMoveTest(Tiny()) {}
};

TEST_F(ScatteredMove, RunsAreReadAndWritten) {
  const JobId holes = world_->OpenJob();
  const SessionId filler = world_->OpenSession(holes);
  constexpr uint32_t kSmall = 5 * kPagesPerBlock;
  world_->Turns(2);
  for (uint32_t i = 0; i < kSmall; ++i) world_->Put(filler, 1000 + i, kPageSize, 1, kShared);
  ASSERT_EQ(world_->Ask(filler, Op::kFlush, {}).code, Code::kOk);
  for (uint32_t i = 0; i < kSmall; ++i) {  // What is left of both devices fits on one.
    if (i % 16 != 0) world_->Free(filler, 1000 + i, kShared);
  }
  Settle();
  world_->Put(filler, 1, kPiece, 1, kShared);  // The last whole block.
  ASSERT_EQ(world_->Flush(filler, 1, kShared).code, Code::kOk);
  const JobId id = world_->OpenJob(kNamed);
  const SessionId session = world_->OpenSession(id);
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) world_->Put(session, tensor, kPiece / 8, tensor, kShared);
  ASSERT_EQ(world_->Ask(session, Op::kPersist, {}).code, Code::kOk);
  world_->engine->CloseJob(id, "done", false);
  Settle();
  const Manifest before = Stored();
  ASSERT_FALSE(before.runs.empty());
  const uint16_t device = before.tensors[0].pieces[0].device;
  Drain(device);
  const auto left = [&] {
    for (const ManifestTensor& tensor : Stored().tensors) {
      if (tensor.pieces[0].device == device) return true;
    }
    return false;
  };
  ASSERT_TRUE(Within(seconds(10), [&] { return !left(); }));
  EXPECT_FALSE(Stored().runs.empty());
  Settle();
  ExpectListOfManifest(*world_);
  World next(Next());
  next.transfers.FailDevice(device, EIO);
  EXPECT_EQ(CheckAll(next, next.OpenSession(next.OpenJob(kResume)), 4), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
