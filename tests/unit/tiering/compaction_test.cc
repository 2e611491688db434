// Compaction: pieces move in RAM so that scattered free pages serve a request, and what may come meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using memory::CopyOutcome;
using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

const CompactionFigures& Moved(const EngineSnapshot& snapshot, CompactionCause cause) {
  return snapshot.compaction[static_cast<size_t>(cause)];
}

// A job of so many blocks of RAM, and no SSD.
class Compaction : public ::testing::Test {
 protected:
  static WorldOptions RamOnly() {
    return {.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece}, .transfers = {.device_count = 0}};
  }
  static JobOptions Of(uint64_t blocks) { return {.key = {}, .limit_bytes = blocks * kPiece}; }
  explicit Compaction(uint64_t blocks = 8) : world(RamOnly()), job(world.OpenJob(Of(blocks))) {}

  // One page of each tensor in a block of its own: blocks are filled, and most of it is freed again.
  void LeaveOnePageInEachBlock(uint64_t blocks) {
    for (uint64_t i = 0; i < blocks; ++i) {
      world.Put(session, 100 + i, kPageSize, 100 + i);
      world.Put(session, 200 + i, kPiece - kPageSize, 200 + i);
    }
    for (uint64_t i = 0; i < blocks; ++i) EXPECT_EQ(world.Free(session, 200 + i).code, Code::kOk);
  }
  void CheckPages(uint64_t blocks) {
    for (uint64_t i = 0; i < blocks; ++i) EXPECT_EQ(world.Check(session, 100 + i, 100 + i), Code::kOk) << i;
  }
  CompactionFigures Figures(CompactionCause cause) { return Moved(world.engine->Snapshot(), cause); }
  // Begins a create that only moves can serve, and stops while these are under way.
  uint64_t AskWhilePiecesMove(uint64_t tensor) {
    world.copier.SetDelay(3, 3);
    const uint64_t asked = world.Send(session, Op::kCreate, {{tensor, 0, 0, kPiece}});
    world.Turns(2);
    EXPECT_NE(world.copier.inflight(), 0U);
    EXPECT_FALSE(world.Answered(session, asked).has_value());
    return asked;
  }

  World world;
  JobId job;
  SessionId session = world.OpenSession(job);
};

TEST_F(Compaction, ScatteredPagesBecomeBlocksWithoutAnSsd) {
  LeaveOnePageInEachBlock(8);
  const base::TimePoint before = world.now;
  for (uint64_t id = 1; id <= 7; ++id) world.Put(session, id, kPiece, id);
  EXPECT_LT(world.now - before, std::chrono::seconds(1)) << "none of them waited for its deadline";
  EXPECT_EQ(world.CheckEach(session, 1, 7), Code::kOk);
  CheckPages(8);
  EXPECT_EQ(Figures(CompactionCause::kBlock).moves, 7U);
  EXPECT_EQ(Figures(CompactionCause::kBlock).bytes, 7 * kPageSize);
  EXPECT_EQ(world.Job(job).moved_bytes, 7 * kPageSize);
}

TEST_F(Compaction, ARequestForManyBlocksIsServedByOneRoundOfMoves) {
  LeaveOnePageInEachBlock(8);
  world.Put(session, 1, 7 * kPiece);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
  CheckPages(8);
}

// 7.5 MiB of 8: three blocks, and 384 pages side by side in the fourth.
TEST_F(Compaction, ScatteredPagesBecomeRoomForATail) {
  World small(RamOnly());
  const SessionId owner = small.Open(Of(4));
  for (uint64_t id = 1; id <= 64; ++id) small.Put(owner, id, 8 * kPageSize, id);
  for (uint64_t id = 1; id <= 64; ++id) {
    const Code code = id % 8 == 0 ? Code::kOk : small.Free(owner, id).code;
    EXPECT_EQ(code, Code::kOk);
  }
  const base::TimePoint before = small.now;
  small.Put(owner, 1000, 3 * kPiece + 384 * kPageSize, 9);
  EXPECT_LT(small.now - before, std::chrono::seconds(1));
  EXPECT_EQ(small.Check(owner, 1000, 9), Code::kOk);
  for (uint64_t id = 8; id <= 64; id += 8) EXPECT_EQ(small.Check(owner, id, id), Code::kOk);
  const CompactionFigures moved = Moved(small.engine->Snapshot(), CompactionCause::kSlot);
  EXPECT_GT(moved.moves, 0U);
}

// Slots that fit no hole of another block are packed into a free one.
TEST_F(Compaction, SlotsThatFitNoHoleArePackedIntoAFreeBlock) {
  World small(RamOnly());
  const SessionId owner = small.Open(Of(4));
  for (const uint64_t first : {10U, 20U}) {  // Two blocks: 60 pages, 90, 60, 90, 212; the others full of slots of 90.
    small.Put(owner, first, 90 * kPageSize, first);
    small.Put(owner, first + 1, 150 * kPageSize, first + 1);
    small.Put(owner, first + 2, 182 * kPageSize, first + 2);
    small.Put(owner, first + 3, 90 * kPageSize, first + 3);
  }
  EXPECT_EQ(small.Free(owner, 11).code, Code::kOk);
  EXPECT_EQ(small.Free(owner, 21).code, Code::kOk);
  // Two blocks of 90 + 182 + 90 pages: each has a hole of 150 in its middle.
  EXPECT_EQ(small.Free(owner, 12).code, Code::kOk);
  EXPECT_EQ(small.Free(owner, 22).code, Code::kOk);
  small.Put(owner, 30, 140 * kPageSize, 30);
  const base::TimePoint before = small.now;
  small.Put(owner, 1, 2 * kPiece, 1);
  small.Put(owner, 2, kPiece - 400 * kPageSize, 2);
  EXPECT_LT(small.now - before, std::chrono::seconds(1));
  for (const uint64_t id : {10U, 13U, 20U, 23U, 30U, 1U, 2U}) EXPECT_EQ(small.Check(owner, id, id), Code::kOk) << id;
}

TEST_F(Compaction, WhatIsLeasedStaysAndIsMovedWhenItsLeaseEnds) {
  LeaveOnePageInEachBlock(8);
  std::vector<uint64_t> leases;
  const SessionId reader = world.OpenSession(job);
  for (uint64_t i = 0; i < 8; ++i) {
    const Answer acquired = world.Acquire(session, 100 + i);
    ASSERT_EQ(acquired.code, Code::kOk);
    leases.push_back(World::LeaseOf(acquired));
  }
  const uint64_t asked = world.Send(reader, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(10);
  EXPECT_FALSE(world.Answered(reader, asked).has_value()) << "every block has a leased slot";
  EXPECT_FALSE(world.Turn()) << "and nothing is done before a lease ends";
  world.Release(session, leases.back());
  world.Turns(10);
  ASSERT_TRUE(world.Answered(reader, asked).has_value());
  EXPECT_EQ(world.Answered(reader, asked)->code, Code::kOk);
  EXPECT_EQ(Figures(CompactionCause::kBlock).moves, 1U);
}

TEST_F(Compaction, AReadLeaseIsGrantedAtOnceAndItsPieceStays) {
  LeaveOnePageInEachBlock(8);
  const uint64_t asked = AskWhilePiecesMove(1);
  const uint32_t moving = world.copier.inflight();
  std::vector<uint64_t> sent;
  for (uint64_t i = 0; i < 8; ++i) sent.push_back(world.Send(session, Op::kAcquire, {{100 + i, 0, 0, 0}}));
  world.Turn();
  EXPECT_EQ(Figures(CompactionCause::kBlock).cancelled, moving);
  world.Turns(10);
  for (uint64_t i = 0; i < 8; ++i) {
    const auto reader = world.Answered(session, sent[i]);
    ASSERT_TRUE(reader.has_value());
    EXPECT_TRUE(world.Matches(reader->spans, 100 + i, 100 + i)) << "nothing under a lease moves";
    EXPECT_EQ(world.Release(session, World::LeaseOf(*reader)).code, Code::kOk);
  }
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  CheckPages(8);
}

TEST_F(Compaction, AWriteLeaseIsGrantedAtOnceAndWhatItWritesCounts) {
  LeaveOnePageInEachBlock(8);
  const uint64_t asked = AskWhilePiecesMove(1);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Rewrite(session, 100 + i, 500 + i).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Check(session, 100 + i, 500 + i), Code::kOk);
}

TEST_F(Compaction, WhatMovesCanBeFreedAndItsRoomIsUsedWhenTheCopyEnds) {
  LeaveOnePageInEachBlock(8);
  const uint64_t asked = AskWhilePiecesMove(1);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Free(session, 100 + i).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  world.Turns(10);
  EXPECT_EQ(world.Job(job).ram_bytes, kPiece);
}

TEST_F(Compaction, AJobThatClosesMeanwhileGivesItsWindowsBackWhenTheCopiesEnd) {
  LeaveOnePageInEachBlock(8);
  (void)AskWhilePiecesMove(1);
  world.engine->CloseJob(job, "closed", true);
  world.Turn();
  EXPECT_NE(world.windows.window_count(), 0U) << "a worker still reads there";
  world.Turns(10);
  EXPECT_EQ(world.windows.window_count(), 0U);
  EXPECT_TRUE(world.engine->idle());
}

TEST_F(Compaction, ASessionThatDiesMeanwhileLeavesNothing) {
  LeaveOnePageInEachBlock(8);
  (void)AskWhilePiecesMove(1);
  world.EndSession(session);
  world.Turns(20);
  EXPECT_EQ(world.windows.window_count(), 0U);
}

TEST_F(Compaction, ARequestThatIsGoneMeanwhileLeavesTheMovesMade) {
  LeaveOnePageInEachBlock(8);
  const SessionId other = world.OpenSession(job);
  world.copier.SetDelay(3, 3);
  (void)world.Send(other, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(2);
  world.EndSession(other);
  world.Turns(10);
  CheckPages(8);
  EXPECT_EQ(world.Job(job).ram_bytes, 8 * kPageSize);
}

TEST_F(Compaction, AWindowThatIsTakenAwayEndsTheSessionsOfItsJobAlone) {
  const JobId other_job = world.OpenJob();
  const SessionId other = world.OpenSession(other_job);
  world.Put(other, 1, kPageSize, 7);
  const SessionId keeper = world.OpenSession(job);
  LeaveOnePageInEachBlock(8);
  world.copier.FaultNext(CopyOutcome::kTargetFault);
  (void)world.Send(session, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(10);
  EXPECT_TRUE(world.sink.ended.contains(static_cast<uint64_t>(session)));
  EXPECT_TRUE(world.sink.ended.contains(static_cast<uint64_t>(keeper)));
  EXPECT_EQ(world.sink.ended[static_cast<uint64_t>(session)].first, Code::kRevoked);
  EXPECT_FALSE(world.sink.ended.contains(static_cast<uint64_t>(other)));
  EXPECT_EQ(world.Check(other, 1, 7), Code::kOk);
}

// The bytes of a piece that has no other copy are gone: that is never told in silence.
TEST_F(Compaction, APieceWhoseMemoryIsTakenAwayWhileItMovesIsTorn) {
  WorldOptions of_world = RamOnly();
  of_world.manifests = true;
  World named(of_world);
  JobOptions options = Of(4);
  options.key = "0/named";
  options.named = true;
  const JobId owner_job = named.OpenJob(options);
  const SessionId owner = named.OpenSession(owner_job);
  for (uint64_t i = 0; i < 4; ++i) {
    named.Put(owner, 100 + i, kPageSize, 100 + i, proto::kFlagShared);
    named.Put(owner, 200 + i, kPiece - kPageSize, 200 + i);
  }
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(named.Free(owner, 200 + i).code, Code::kOk);
  named.copier.FaultNext(CopyOutcome::kSourceFault);
  (void)named.Send(owner, Op::kCreate, {{1, 0, 0, kPiece}});
  named.Turns(10);
  EXPECT_TRUE(named.sink.ended.contains(static_cast<uint64_t>(owner)));
  const SessionId next = named.OpenSession(owner_job);
  uint32_t torn = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const Code code = named.Check(next, 100 + i, 100 + i, proto::kFlagShared);
    EXPECT_TRUE(code == Code::kOk || code == Code::kTorn) << CodeName(code);
    torn += code == Code::kTorn ? 1 : 0;
  }
  EXPECT_EQ(torn, 1U);
}

// With an SSD too, what is there in scattered pages is not evicted for.
TEST_F(Compaction, NothingIsEvictedWherePagesAreOnlyScattered) {
  World with_ssd({.windows = {.window_size = kPiece, .arena_max_bytes = 8 * kPiece}});
  const JobId owner_job = with_ssd.OpenJob();
  const SessionId owner = with_ssd.OpenSession(owner_job);
  for (uint64_t i = 0; i < 8; ++i) {
    with_ssd.Put(owner, 100 + i, kPageSize, 100 + i);
    with_ssd.Put(owner, 200 + i, kPiece - kPageSize, 200 + i);
  }
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(with_ssd.Free(owner, 200 + i).code, Code::kOk);
    EXPECT_EQ(with_ssd.Flush(owner, 100 + i).code, Code::kOk);
  }
  const uint64_t evicted = with_ssd.Job(owner_job).evicted_bytes;
  with_ssd.Put(owner, 1, 6 * kPiece, 1);
  EXPECT_EQ(with_ssd.Job(owner_job).evicted_bytes, evicted);
  EXPECT_EQ(with_ssd.Check(owner, 1, 1), Code::kOk);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(with_ssd.Check(owner, 100 + i, 100 + i), Code::kOk);
}

// Slots of more than half a block each fit no hole of another one: they are divided.
TEST_F(Compaction, SlotsThatFitNoHoleMoveInParts) {
  for (uint64_t i = 0; i < 8; ++i) {
    world.Put(session, 100 + i, 300 * kPageSize, 100 + i);
    world.Put(session, 200 + i, 212 * kPageSize, 200 + i);
  }
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Free(session, 200 + i).code, Code::kOk);
  for (uint64_t id = 1; id <= 3; ++id) world.Put(session, id, kPiece, id);
  EXPECT_GT(Figures(CompactionCause::kBlock).moves, 3U);
  EXPECT_EQ(world.CheckEach(session, 1, 3), Code::kOk);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Check(session, 100 + i, 100 + i), Code::kOk);
}

// What compaction cannot serve is refused, and told why: a leased slot in each block.
TEST_F(Compaction, WhatNoMoveCanServeIsRefusedWithTheReason) {
  LeaveOnePageInEachBlock(8);
  const SessionId asker = world.OpenSession(job);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(world.Acquire(session, 100 + i).code, Code::kOk);
  const Answer answer = world.Create(asker, 1, kPiece);
  EXPECT_NE(answer.code, Code::kOk);
  EXPECT_THAT(answer.detail, ::testing::HasSubstr("that is enough, but it lies in 0 free blocks of 2 MiB and in gaps"));
  EXPECT_THAT(answer.detail, ::testing::HasSubstr("beside leased tensors"));
  EXPECT_EQ(Figures(CompactionCause::kBlock).moves, 0U);
}

// … but the room beside them is not taken from what a job is promised: a sixty-fourth of that comes for it, of the
// part of the arena that is promised to no job.
TEST(CompactionOfAPromise, WhatNoMovePacksIsServedByWindowsBeyondIt) {
  constexpr uint64_t kLeased = 140;
  World world({.windows = {.window_size = kPiece, .arena_max_bytes = 160 * kPiece, .windows_max = 200},
               .transfers = {.device_count = 0}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  for (uint64_t id = 1; id <= kLeased; ++id) {
    world.Put(session, id, kPageSize, id, proto::kFlagShared);
    world.Put(session, 2000 + id, kPiece - kPageSize, id);
  }
  for (uint64_t id = 1; id <= kLeased; ++id) {
    ASSERT_EQ(world.Acquire(reader, id, proto::kFlagShared).code, Code::kOk);
    ASSERT_EQ(world.Free(session, 2000 + id).code, Code::kOk);
  }
  EXPECT_EQ(world.Job(job).guarantee_bytes, 150 * kPiece);
  uint64_t blocks = 0;
  Answer refused = world.Create(session, 1000, kPiece);
  for (; refused.code == Code::kOk && blocks < 100; ++blocks) refused = world.Create(session, 1001 + blocks, kPiece);
  EXPECT_EQ(blocks, 12U) << refused.detail;
  EXPECT_EQ(world.Job(job).held_bytes, 152 * kPiece);
}

// Slots of more than half a block leave nothing unused.
TEST(CompactionOfAPromise, AllOfItServesWhateverTheSizes) {
  World world({.windows = {.window_size = kPiece, .arena_max_bytes = 160 * kPiece, .windows_max = 200},
               .transfers = {.device_count = 0}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 140, 300 * kPageSize);
  uint64_t blocks = 0;
  Answer refused = world.Create(session, 1000, kPiece);
  for (; refused.code == Code::kOk && blocks < 100; ++blocks) refused = world.Create(session, 1001 + blocks, kPiece);
  EXPECT_EQ(blocks, (150 * kPagesPerBlock - 140 * 300) / kPagesPerBlock) << refused.detail;
  EXPECT_EQ(refused.code, Code::kNoSpace) << refused.detail;
  EXPECT_EQ(world.Job(job).held_bytes, 150 * kPiece);
  EXPECT_EQ(world.CheckEach(session, 1, 140), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
