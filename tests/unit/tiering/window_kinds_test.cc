// Two kinds of windows: whole blocks lie in block windows, small tensors and tails in slot windows, and each kind gives
// room to the other before anything is refused.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kBlockWindow = 8 * kMiB;
constexpr uint64_t kSlotWindow = 2 * kMiB;

// Block windows of four blocks; `page_size` is theirs.
WorldOptions WithKinds(uint64_t arena, uint64_t page_size = kBlockSize) {
  return {.windows = {.window_size = kBlockWindow,
                      .slot_window_size = kSlotWindow,
                      .arena_max_bytes = arena,
                      .page_size = static_cast<uint32_t>(page_size)}};
}

uint64_t BlockWindows(const World& world) { return world.windows.CountOf(WindowKind::kBlock); }
uint64_t SlotWindows(const World& world) { return world.windows.CountOf(WindowKind::kSlot); }

TEST(WindowKinds, AThousandSmallTensorsHoldLittleMoreThanTheirBytes) {
  World world(WithKinds(64 * kMiB));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 1000, 4096);
  EXPECT_LE(world.windows.arena_bytes(), 1000 * 4096 * 102 / 100 + kSlotWindow);
  EXPECT_EQ(BlockWindows(world), 0u);
  EXPECT_EQ(world.CheckEach(session, 1, 1000), Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u);
}

TEST(WindowKinds, TailsOfLargeTensorsShareASlotWindow) {
  World world(WithKinds(64 * kMiB));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 8, kPiece + 5000);
  EXPECT_EQ(SlotWindows(world), 1u);
  EXPECT_EQ(BlockWindows(world), 3u) << "one of them ahead of need";
  EXPECT_EQ(world.CheckEach(session, 1, 8), Code::kOk);
}

TEST(WindowKinds, OnlyWholeBlocksLieInHugePages) {
  World world(WithKinds(64 * kMiB));
  const SessionId session = world.Open();
  const Answer large = world.Create(session, 1, 3 * kPiece + 5000);
  const Answer small = world.Create(session, 2, 5000);
  ASSERT_EQ(large.code, Code::kOk) << large.detail;
  ASSERT_EQ(small.code, Code::kOk) << small.detail;
  for (const Answer& answer : {large, small}) {
    for (const proto::SpanRecord& span : answer.spans) {
      const memory::WindowShape& window = world.sink.shapes.at(span.window);
      EXPECT_EQ(window.kind, span.length < kPiece ? WindowKind::kSlot : WindowKind::kBlock);
      EXPECT_EQ(window.page_size, span.length < kPiece ? kPageSize : kBlockSize);
      EXPECT_LE(span.offset + span.length, window.size);
    }
  }
}

TEST(WindowKinds, WholeBlocksUseWhatIsLeftOfTheArenaInSlotWindows) {
  World world(WithKinds(2 * kBlockWindow));
  const SessionId session = world.Open();
  world.Put(session, 1, 4096);
  EXPECT_EQ(world.Create(session, 2, 7 * kPiece).code, Code::kOk) << "14 MiB are free";
  EXPECT_EQ(BlockWindows(world), 1u);
  EXPECT_EQ(SlotWindows(world), 4u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(WindowKinds, SlotsUseBlockWindowsInSmallPagesBeforeTheJobGrows) {
  World world(WithKinds(64 * kMiB, kPageSize));
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece + 5000);
  world.PutEach(session, 2, 9, 5000);
  EXPECT_EQ(BlockWindows(world), 1u);
  EXPECT_EQ(SlotWindows(world), 0u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(WindowKinds, ASmallTensorAloneHoldsASlotWindowWhateverThePages) {
  for (const uint64_t page_size : {kPageSize, kBlockSize}) {
    World world(WithKinds(64 * kMiB, page_size));
    world.Put(world.Open(), 1, 4096);
    EXPECT_EQ(world.windows.arena_bytes(), kSlotWindow);
  }
}

TEST(WindowKinds, EmptyWindowsInHugePagesMakeRoomForSmallTensors) {
  World world(WithKinds(2 * kBlockWindow));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 8, kPiece);
  for (uint64_t id = 1; id <= 8; ++id) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  ASSERT_EQ(world.windows.arena_bytes(), 2 * kBlockWindow);
  const uint64_t written = world.transfers.traffic(0).written_bytes;
  world.Put(session, 11, 4096, 11);  // One window is asked back; meanwhile it takes a block of the other.
  EXPECT_EQ(world.sink.returns.size(), 1u);
  world.ReturnWindows();
  world.PutEach(session, 12, 1000, 4096);
  EXPECT_EQ(world.CheckEach(session, 11, 1000), Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, written) << "all of it is in RAM";
  EXPECT_EQ(SlotWindows(world), 2u);
}

TEST(WindowKinds, AWindowWithABlockInItIsNotGivenBackForSlots) {
  World world(WithKinds(kBlockWindow));
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.PutEach(session, 2, 4, 4096);
  EXPECT_TRUE(world.sink.returns.empty());
  EXPECT_EQ(world.CheckEach(session, 1, 4), Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u) << "each took one of the three free blocks";
}

// Without an SSD. The job holds all that it may, with one block left in each window.
TEST(WindowKinds, WindowsInHugePagesAreEmptiedByMovesForSmallTensors) {
  constexpr uint64_t kWindows = 4;
  WorldOptions options = WithKinds(2 * kWindows * kBlockWindow);
  options.transfers.device_count = 0;
  World world(options);
  const SessionId session = world.Open({.limit_bytes = kWindows * kBlockWindow});
  constexpr uint64_t kBlocks = kWindows * kBlockWindow / kBlockSize;
  world.PutEach(session, 1, kBlocks, kPiece);
  for (uint64_t id = 1; id <= kBlocks; ++id) {
    if (id % 4 == 1) continue;
    EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  }
  std::vector<proto::RequestItem> items;
  for (uint64_t id = 100; id < 116; ++id) items.push_back({id, 0, 0, 4096});
  const uint64_t many = world.Send(session, Op::kCreate, items);
  for (int turn = 0; turn < 200 && !world.Answered(session, many); ++turn) {
    world.Turn();
    world.ReturnWindows();
  }
  const Answer created = world.Answered(session, many).value_or(Answer{.code = Code::kTimeout});
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  for (uint32_t i = 0; i < 16; ++i) world.Fill({created.spans[i]}, 100 + i, 100 + i);
  for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(world.Release(session, World::LeaseOf(created, i)).code, Code::kOk);
  world.PutEach(session, 200, 1199, 4096);
  EXPECT_EQ(world.CheckEach(session, 100, 115), Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 200, 1199), Code::kOk);
  for (uint64_t id = 1; id <= kBlocks; id += 4) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
  EXPECT_LE(world.windows.arena_bytes(), kWindows * kBlockWindow);
}

TEST(WindowKinds, WhereNoSlotWindowIsToBeHadASmallTensorTakesABlock) {
  WorldOptions options = WithKinds(16 * kMiB);
  options.windows.arena_limit_bytes = 64 * kMiB;
  World world(options);
  world.windows.RefuseSlotWindows(true);
  const SessionId session = world.Open();
  world.PutEach(session, 1, 10, 5000);
  world.Put(session, 11, kPiece + 5000, 11);
  EXPECT_EQ(world.CheckEach(session, 1, 11), Code::kOk);
  EXPECT_EQ(SlotWindows(world), 0u);
  // What the host refused once is asked for again when memory comes back.
  world.windows.RefuseSlotWindows(false);
  world.windows.SetArenaMax(32 * kMiB);
  world.PutEach(session, 12, 200, 5000);
  EXPECT_EQ(SlotWindows(world), 1u);
  EXPECT_EQ(world.CheckEach(session, 1, 200), Code::kOk);
}

TEST(WindowKinds, BlocksWaitForHugePagesThatAreOnTheirWayBack) {
  World world(WithKinds(64 * kMiB));
  world.windows.SetHugePagesClosing(true);
  const SessionId session = world.Open();
  const uint64_t asked = world.Send(session, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.windows.window_count(), 0u) << "no slot window in their place";
  world.windows.SetHugePagesClosing(false);
  world.Turns(5);
  ASSERT_TRUE(world.Answered(session, asked).has_value()) << "it is told when they have come";
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kOk);
  EXPECT_EQ(SlotWindows(world), 0u);
}

TEST(WindowKinds, ALimitLeavesRoomForBothKinds) {
  World world(WithKinds(64 * kMiB));
  const SessionId session = world.OpenSession(world.OpenJob({.limit_bytes = kBlockWindow}));
  world.PutEach(session, 1, 100, 4096);
  EXPECT_EQ(world.Create(session, 101, 3 * kPiece).code, Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 1, 100), Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u);
}

TEST(WindowKinds, ABlockWindowThatIsHandedOverBecomesSlotWindows) {
  World world(WithKinds(4 * kBlockWindow));
  const SessionId greedy = world.Open();
  world.PutEach(greedy, 1, 16, kPiece);
  ASSERT_EQ(world.windows.arena_bytes(), 4 * kBlockWindow);
  const SessionId other = world.Open();
  const uint64_t asked = world.Send(other, Op::kCreate, {{1, 0, 0, 4096}});
  world.TurnsReturning(other, asked, 200, std::chrono::milliseconds(3));
  ASSERT_TRUE(world.Answered(other, asked).has_value());
  EXPECT_EQ(world.Answered(other, asked)->code, Code::kOk);
  EXPECT_EQ(SlotWindows(world), 1u);
  EXPECT_EQ(BlockWindows(world), 3u) << "one is enough";
  EXPECT_EQ(world.CheckEach(greedy, 1, 16), Code::kOk);
}

// E-12: the host's shortage is paid with windows of both kinds, whether anybody is owed or not, and no promise moves.
TEST(WindowKinds, AShortHostIsPaidBackAndEachStillReachesItsPromise) {
  World world(WithKinds(4 * kBlockWindow, kPageSize));
  const JobId greedy_job = world.OpenJob({.uid = 1});
  const SessionId greedy = world.OpenSession(greedy_job);
  world.PutEach(greedy, 1, 100, 4096);
  world.PutEach(greedy, 101, 111, kPiece);
  ASSERT_GT(BlockWindows(world), 0u);
  ASSERT_GT(SlotWindows(world), 0u);
  const JobId poor_job = world.OpenJob({.uid = 2});
  const SessionId poor = world.OpenSession(poor_job);
  world.Turn();
  const uint64_t promised = world.Job(poor_job).share_bytes;
  world.windows.SetArenaMax(2 * kBlockWindow);
  for (int i = 0; i < 100; ++i) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(3));
    world.ReturnWindows();
  }
  EXPECT_LE(world.windows.arena_bytes(), 2 * kBlockWindow) << "the debt is paid";
  EXPECT_EQ(world.Job(poor_job).share_bytes, promised);
  const uint64_t asked = world.Send(poor, Op::kCreate, {{1, 0, 0, 2 * kPiece + 4096}});
  world.TurnsReturning(poor, asked, 400, std::chrono::milliseconds(3));
  ASSERT_TRUE(world.Answered(poor, asked).has_value());
  EXPECT_EQ(world.Answered(poor, asked)->code, Code::kOk) << world.Answered(poor, asked)->detail;
  EXPECT_LE(world.windows.arena_bytes(), 2 * kBlockWindow) << "windows only changed places";
  EXPECT_EQ(world.Job(poor_job).share_bytes, promised);
  world.windows.SetArenaMax(4 * kBlockWindow);
  EXPECT_EQ(world.CheckEach(greedy, 1, 111), Code::kOk) << "what was evicted comes back";
  EXPECT_GT(world.windows.arena_bytes(), 2 * kBlockWindow) << "the host has memory again";
}

TEST(WindowKinds, APrefetchedTailGetsASlotWindow) {
  World world(WithKinds(4 * kBlockWindow));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, kPiece + 5000);
  EXPECT_EQ(world.Create(session, 2, kPiece - kPageSize).code, Code::kOk) << "all but a page of the slot window";
  ASSERT_EQ(SlotWindows(world), 1u);
  EXPECT_EQ(world.Ask(session, Op::kPrefetch, {{1, 0, 0, 0}}).value, 1u);
  world.Turns(10);
  EXPECT_EQ(SlotWindows(world), 2u);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).tensor.ram_bytes, kPiece + 5000);
}

TEST(WindowKinds, ColdBlocksStayWhereEvictingThemMakesNoRoomForASlot) {
  World world(WithKinds(4 * kBlockWindow));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  world.Put(session, 5, kPiece - kPageSize, 5);
  world.Put(session, 6, 5000, 6);
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(world.Ask(session, Op::kStat, {{id, 0, 0, 0}}).tensor.ram_bytes, kPiece) << id;
  }
  EXPECT_EQ(SlotWindows(world), 2u);
}

}  // namespace
}  // namespace tier::tiering::testing
