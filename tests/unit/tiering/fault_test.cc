// Devices that fail, fill up and flip bytes; indexes that are full: the RAM copy stays, or the answer is typed.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using storage::Direction;
using storage::TransferOutcome;
constexpr uint64_t kPiece = kBlockSize;
constexpr storage::testing::FakeFault kWriteError{Direction::kWrite, TransferOutcome::kDeviceError, 5};
constexpr storage::testing::FakeFault kReadError{Direction::kRead, TransferOutcome::kDeviceError, 5};
constexpr storage::testing::FakeFault kNoSpace{Direction::kWrite, TransferOutcome::kNoSpace, 28};

WorldOptions Small(uint32_t device_blocks = 64) {
  return {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB},
          .engine = {.write_behind_start = 1.0},  // Nothing is written before it has to be.
          .device_blocks = device_blocks};
}

TEST(Faults, AFailedWriteIsWrittenAgainElsewhere) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.transfers.FailNext(kWriteError);
  EXPECT_EQ(world.Flush(session, 1).code, Code::kOk);
  EXPECT_EQ(world.extents.total().quarantined, 0u) << "once is no proof that the place is bad";
  EXPECT_EQ(world.Drop(session, 1).value, kPiece);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(Faults, ADeviceThatKeepsFailingEndsAFlushWithTheReason) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.transfers.FailNext(kWriteError, 1000);
  const Answer refused = world.Flush(session, 1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_NE(refused.detail.find("tensor 0x1 at byte 0 on device 0 at byte"), std::string::npos) << refused.detail;
  EXPECT_EQ(world.Check(session, 1), Code::kOk) << "the RAM copy stays";
}

TEST(Faults, AShortWaiterHearsThatTheDeviceFails) {
  World world(Small());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  world.transfers.FailNext(kWriteError, 100000);
  const Answer refused = world.Create(session, 5, kPiece);
  EXPECT_EQ(refused.code, Code::kIoError) << refused.detail;
  EXPECT_EQ(world.CheckEach(session, 1, 4), Code::kOk);
}

TEST(Faults, AFileSystemWithoutRoomLeavesTheRamCopy) {
  World world(Small());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  world.transfers.FailNext(kNoSpace, 100000);
  EXPECT_EQ(world.Create(session, 5, kPiece).code, Code::kNoSpace);
  EXPECT_EQ(world.extents.total().quarantined, 0u) << "nothing is wrong with the device";
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_EQ(world.CheckEach(session, 1, 4), Code::kOk);
}

TEST(Faults, WritingGoesOnWhenTheDeviceRecovers) {
  World world(Small());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  world.transfers.FailNext(kNoSpace, 3);
  EXPECT_EQ(world.Create(session, 5, kPiece).code, Code::kOk);
}

TEST(Faults, AFullSsdTierRefusesWithFigures) {
  World world(Small(9));  // Of 18 MiB one block is kept for exchange, and one for others: RAM adds none.
  const SessionId session = world.Open();
  world.PutEach(session, 1, 7, kPiece);
  const Answer refused = world.Create(session, 8, kPiece);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(refused.error.available, kPiece / 2);
  EXPECT_EQ(world.CheckEach(session, 1, 7), Code::kOk);
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  EXPECT_EQ(world.Create(session, 8, kPiece).code, Code::kOk);
}

TEST(Faults, AReadErrorIsTypedAndTheNextAcquireReadsAgain) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 2 * kPiece);
  world.transfers.FailNext(kReadError);
  const Answer refused = world.Acquire(session, 1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_NE(refused.detail.find("device 0"), std::string::npos) << refused.detail;
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(Faults, APlaceThatFailedToReadIsInDoubtWhenItIsGivenUp) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, kPiece);
  world.transfers.FailNext(kReadError);
  EXPECT_EQ(world.Acquire(session, 1).code, Code::kIoError);
  EXPECT_EQ(world.extents.total().quarantined, 0u) << "its bytes are the only copy";
  EXPECT_EQ(world.Free(session, 1).code, Code::kOk);
  EXPECT_EQ(world.extents.total().doubtful, kPiece);
  world.Put(session, 2, kPiece);
  EXPECT_EQ(world.Flush(session, 2).code, Code::kOk);
  EXPECT_EQ(world.extents.total().doubtful, kPiece) << "another place works: it is put aside";
  EXPECT_EQ(world.extents.total().quarantined, 0u);
}

TEST(Faults, FlippedBytesAreCorruptNamingTensorAndOffset) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 2 * kPiece);
  // The second piece lies in the second block of the device.
  world.transfers.disk().FlipByte({.run = {1, 0, kPagesPerBlock}, .device = 0}, 12345);
  const Answer refused = world.Acquire(session, 1);
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_EQ(refused.error.requested, kPiece) << "the offset of the piece";
  EXPECT_NE(refused.detail.find("tensor 0x1 at byte 2097152 came back from device 0 at byte 2097152"),
            std::string::npos)
      << refused.detail;
  EXPECT_NE(refused.detail.find("the memory that it was written from"), std::string::npos) << refused.detail;
}

TEST(Faults, ACorruptPieceIsChargedToItsJobAndDevice) {
  World world;
  const JobId job = world.OpenJob({.key = "1000/train"});
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, 2 * kPiece);
  EXPECT_TRUE(world.engine->Snapshot().corrupt_pieces.empty());
  world.transfers.disk().FlipByte({.run = {1, 0, kPagesPerBlock}, .device = 0}, 12345);
  EXPECT_EQ(world.Check(session, 1), Code::kCorrupt);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  ASSERT_EQ(snapshot.corrupt_pieces.size(), 1u);
  EXPECT_EQ(snapshot.corrupt_pieces[0].job, job);
  EXPECT_EQ(snapshot.corrupt_pieces[0].key, "1000/train");
  EXPECT_EQ(snapshot.corrupt_pieces[0].device, 0u);
  EXPECT_EQ(snapshot.corrupt_pieces[0].count, 1u);
  world.engine->CloseJob(job, "removed", false);
  world.Turns(3);
  EXPECT_EQ(world.engine->Snapshot().corrupt_pieces.size(), 1u) << "it is named behind its end";
}

TEST(Faults, CorruptionIsStickyUntilTheBytesAreWrittenAgain) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 2 * kPiece);
  world.transfers.disk().FlipByte({.run = {1, 0, kPagesPerBlock}, .device = 0}, 0);
  EXPECT_EQ(world.Check(session, 1), Code::kCorrupt);
  EXPECT_EQ(world.Check(session, 1), Code::kCorrupt);
  EXPECT_EQ(world.Acquire(session, 1, 0, 0, kPiece).code, Code::kOk) << "what is sound is still to be had";
  EXPECT_EQ(world.Acquire(session, 1, proto::kFlagWrite, kPiece, 100).code, Code::kCorrupt)
      << "part of it would stay wrong";
  const Answer granted = world.Acquire(session, 1, proto::kFlagWrite | proto::kFlagDiscard, kPiece, kPiece);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  world.Fill(granted.spans, 1, 1, kPiece);
  EXPECT_EQ(world.Release(session, World::LeaseOf(granted)).code, Code::kOk);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(Faults, SeveralWaitersOfACorruptPieceAllHearIt) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.PutOnSsd(a, 1, kPiece, 1, proto::kFlagShared);
  world.transfers.disk().FlipByte({.run = {0, 0, kPagesPerBlock}, .device = 0}, 0);
  const uint64_t first = world.Send(a, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  const uint64_t second = world.Send(b, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  EXPECT_EQ(world.Wait(a, first).code, Code::kCorrupt);
  EXPECT_EQ(world.Wait(b, second).code, Code::kCorrupt);
}

TEST(Faults, ASmallPortStillMovesEverything) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB},
               .transfers = {.inflight_max = 2, .delay_turns_max = 5}});
  const SessionId session = world.Open();
  world.PutEach(session, 1, 12, kPiece);
  EXPECT_EQ(world.CheckEach(session, 1, 12), Code::kOk);
}

TEST(Faults, DrainingADeviceMovesItsExtentsToTheOther) {
  World world({.transfers = {.device_count = 2}, .device_blocks = 64});
  const SessionId session = world.Open();
  for (uint64_t id = 1; id <= 12; ++id) world.PutOnSsd(session, id, kPiece, id);
  world.PutEach(session, 13, 16, kPiece);
  EXPECT_EQ(world.Flush(session, 13).code, Code::kOk);
  ASSERT_GT(world.extents.space(0).live, 0u);
  ASSERT_TRUE(world.engine->SetDeviceDraining(0, true).has_value());
  for (int turn = 0; turn < 500 && world.extents.space(0).live != 0; ++turn) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(world.extents.space(0).live, 0u);
  EXPECT_EQ(world.CheckEach(session, 1, 16), Code::kOk);
  EXPECT_EQ(world.engine->SetDeviceDraining(7, true).error().code, Code::kNotFound);
}

TEST(Port, AJobThatFindsItFilledByAnotherGoesOnWhenThereIsRoom) {
  World world({.transfers = {.inflight_max = 4}});
  const SessionId a = world.Open();
  const SessionId b = world.Open();
  world.PutEach(a, 1, 3, 5000);
  world.Put(b, 1, 5000);
  world.transfers.Hold();
  const uint64_t first = world.Send(a, Op::kFlush, {});
  world.Turns(3);
  const uint64_t second = world.Send(b, Op::kFlush, {{1, 0, 0, 0}});
  world.Turns(3);
  ASSERT_EQ(world.transfers.inflight(), 3u) << "all that writes may fill, and all of the first job";
  world.transfers.Release();
  world.Turns(8);
  EXPECT_TRUE(world.Answered(a, first).has_value());
  ASSERT_TRUE(world.Answered(b, second).has_value()) << "nobody else had a reason to wake it";
  EXPECT_EQ(world.Answered(b, second)->code, Code::kOk);
}

TEST(Port, ALongFlushOfOneJobLeavesTheOthersTheirPart) {
  for (const bool first_is_long : {true, false}) {
    World world({.transfers = {.inflight_max = 4}, .engine = {.write_behind_start = 1.0}});
    const SessionId a = world.Open();
    const SessionId b = world.Open();
    const SessionId busy = first_is_long ? a : b;
    const SessionId modest = first_is_long ? b : a;
    world.PutEach(busy, 1, 60, 5000);
    world.Put(modest, 1, 5000);
    const uint64_t long_flush = world.Send(busy, Op::kFlush, {});
    world.Turns(2);
    const uint64_t short_flush = world.Send(modest, Op::kFlush, {{1, 0, 0, 0}});
    world.Turns(4);
    EXPECT_TRUE(world.Answered(modest, short_flush).has_value()) << first_is_long;
    EXPECT_FALSE(world.Answered(busy, long_flush).has_value());
    EXPECT_EQ(world.Wait(busy, long_flush).code, Code::kOk);
  }
}

TEST(Port, WriteBehindGoesOnAfterItFoundThePortFilledByAnother) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 32 * kMiB},
               .transfers = {.inflight_max = 4},
               .engine = {.write_behind_start = 0.1}});
  const SessionId a = world.Open();
  const JobId job = world.OpenJob();
  const SessionId b = world.OpenSession(job);
  world.transfers.Hold();
  world.PutEach(a, 1, 3, 5000);
  world.Send(a, Op::kFlush, {});
  world.Turns(3);
  world.PutEach(b, 1, 4, kBlockSize);
  world.Turns(10);
  EXPECT_EQ(world.Job(job).swap_out_bytes, 0u);
  world.transfers.Release();
  world.Turns(20);
  EXPECT_GT(world.Job(job).swap_out_bytes, 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
