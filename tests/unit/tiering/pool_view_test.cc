// What operators see of the pool: each window with what fills it and what becomes of it, each job with what it holds.
// World checks the books of every step (CheckPool).
#include <algorithm>

#include <gtest/gtest.h>

#include "daemon/tiering/tables/policy.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kBlockWindow = 8 * kMiB;
constexpr uint64_t kSlotWindow = 2 * kMiB;

WorldOptions WithKinds(uint64_t arena) {
  return {.windows = {.window_size = kBlockWindow, .slot_window_size = kSlotWindow, .arena_max_bytes = arena}};
}

const PoolFigures& Of(const PoolView& view, JobId job) {
  const auto found = std::ranges::find(view.jobs, job, &PoolJob::id);
  TIER_CHECK(found != view.jobs.end(), "job {}", static_cast<uint64_t>(job));
  return found->figures;
}

uint64_t InCondition(const PoolView& view, PoolCondition condition) {
  return static_cast<uint64_t>(std::ranges::count(view.windows, condition, &WindowView::condition));
}

ByRamClass<uint64_t> PagesOfAll(const PoolView& view) {
  ByRamClass<uint64_t> sum{};
  for (const WindowView& window : view.windows) {
    for (size_t i = 0; i < kRamClasses; ++i) sum[i] += window.used_pages[i];
  }
  return sum;
}

TEST(PoolView, AnEmptyArenaHasNoWindow) {
  World world(WithKinds(64 * kMiB));
  const PoolView view = world.engine->Pool();
  EXPECT_TRUE(view.windows.empty());
  EXPECT_TRUE(view.jobs.empty());
  EXPECT_EQ(view.arena_bytes, 0u);
  EXPECT_EQ(view.arena_max_bytes, 64 * kMiB);
  EXPECT_EQ(view.stock_bytes, 0u);
}

TEST(PoolView, SaysWhatIsMadeAheadOfNeed) {
  World world(WithKinds(64 * kMiB));
  world.windows.SetStock(48 * kMiB);
  EXPECT_EQ(world.engine->Pool().stock_bytes, 48 * kMiB);
  EXPECT_EQ(world.engine->Pool().arena_bytes, 0u);
  EXPECT_EQ(world.engine->Snapshot().stock_bytes, 48 * kMiB);
}

TEST(PoolView, CountsBlocksTailsAndSlotsToTheByte) {
  World world(WithKinds(64 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.Put(session, 1, 2 * kBlockSize + 5000);  // Two blocks and a tail of two pages.
  world.Put(session, 2, 100);                    // A slot of one page.
  world.Put(session, 3, kBlockSize - 1);         // Less than a block, and all of its pages.
  const PoolView view = world.engine->Pool();
  const PoolFigures& figures = Of(view, job);
  EXPECT_EQ(figures.requested_bytes, (ByRamClass<uint64_t>{3 * kBlockSize - 1, 5000, 100}));
  EXPECT_EQ(PagesOfAll(view), (ByRamClass<uint64_t>{3 * kPagesPerBlock, 2, 1}));
  EXPECT_EQ(figures.held(), world.Job(job).held_bytes);
  EXPECT_EQ(figures.held(), world.windows.arena_bytes());
  EXPECT_EQ(figures.held_bytes[static_cast<size_t>(WindowKind::kSlot)],
            world.windows.CountOf(WindowKind::kSlot) * kSlotWindow);
  EXPECT_EQ(figures.waste(), figures.held() - (3 * kBlockSize - 1 + 5000 + 100));
  EXPECT_EQ(view.arena_bytes, figures.held());
  for (const WindowView& window : view.windows) {
    EXPECT_EQ(window.job, job);
    if (window.condition == PoolCondition::kMaking) continue;
    EXPECT_EQ(window.size, window.kind == WindowKind::kBlock ? kBlockWindow : kSlotWindow);
    EXPECT_EQ(window.place % window.size, 0u);
  }
  world.Free(session, 1);
  world.Free(session, 2);
  world.Free(session, 3);
  world.Turns(2);
  EXPECT_EQ(Of(world.engine->Pool(), job).requested(), 0u);
}

TEST(PoolView, WhatWasEvictedIsRequestedNoMore) {
  World world(WithKinds(32 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, 2 * kBlockSize + 5000);
  EXPECT_EQ(Of(world.engine->Pool(), job).requested(), 0u);
  ASSERT_EQ(world.Check(session, 1), Code::kOk);
  EXPECT_EQ(Of(world.engine->Pool(), job).requested(), 2 * kBlockSize + 5000);
}

TEST(PoolView, TheLargestRunIsOfBlocksElseOfPagesBesideSlots) {
  World world(WithKinds(32 * kMiB));
  world.windows.SetArenaMax(kSlotWindow);
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  ASSERT_EQ(world.Create(session, 1, 100).code, Code::kOk);
  const PoolFigures alone = Of(world.engine->Pool(), job);
  EXPECT_EQ(alone.free_bytes, kBlockSize - kPageSize);
  EXPECT_EQ(alone.largest_run_bytes, kBlockSize - kPageSize);
  world.windows.SetArenaMax(32 * kMiB);
  world.Put(session, 2, kBlockSize);
  world.Turns(3);
  const PoolFigures grown = Of(world.engine->Pool(), job);
  EXPECT_GE(grown.largest_run_bytes, 3 * kBlockSize) << "beside the block in its window";
  EXPECT_EQ(grown.largest_run_bytes % kBlockSize, 0u);
  EXPECT_LE(grown.largest_run_bytes, grown.free_bytes);
}

TEST(PoolView, ShowsWhatIsBorrowedOwedAndOnItsWayBack) {
  WorldOptions options = WithArena(64 * kMiB);
  options.engine.work.move = PieceSlab::kChunk / 3;  // Emptying windows takes several turns.
  World world(options);
  const JobId greedy = world.OpenJob();
  const JobId entitled = world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(greedy);
  world.PutEach(session, 1, 30, kBlockSize);
  const PoolFigures lent = Of(world.engine->Pool(), greedy);
  EXPECT_EQ(lent.held(), 64 * kMiB);
  EXPECT_EQ(lent.borrowed_bytes, 64 * kMiB - world.Job(greedy).guarantee_bytes);
  EXPECT_EQ(lent.owed_bytes, 0u);
  const SessionId other = world.OpenSession(entitled);
  world.Send(other, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
  uint64_t owed_most = 0;
  uint64_t emptying_most = 0;
  for (int turn = 0; turn < 60; ++turn) {  // No client returns a window, which the deadline of 2 s allows for now.
    world.Turn();
    world.Advance(std::chrono::milliseconds(10));
    const PoolView now = world.engine->Pool();
    owed_most = std::max(owed_most, Of(now, entitled).owed_bytes);
    emptying_most = std::max(emptying_most, InCondition(now, PoolCondition::kEmptying));
  }
  EXPECT_GE(owed_most, 8 * kMiB);
  EXPECT_LE(owed_most, 32 * kMiB);
  EXPECT_GE(emptying_most, 1u);
  const uint64_t returning = InCondition(world.engine->Pool(), PoolCondition::kReturning);
  ASSERT_GE(returning, 1u);
  const PoolView view = world.engine->Pool();
  EXPECT_EQ(Of(view, greedy).returning_bytes, returning * 8 * kMiB);
  EXPECT_EQ(world.engine->Snapshot().windows_by_condition[static_cast<size_t>(PoolCondition::kReturning)], returning);
  world.Advance(std::chrono::seconds(3));
  world.Turns(3);
  EXPECT_GE(InCondition(world.engine->Pool(), PoolCondition::kOverdue), 1u) << "nobody has returned them";
}

// The job's index is free again while its window is still being made.
TEST(PoolView, AWindowThatIsMadeForAJobThatHasGoneIsOfNoJob) {
  World world(WithKinds(64 * kMiB));
  world.windows.SetDelay(1000);
  const JobId gone = world.OpenJob();
  const SessionId session = world.OpenSession(gone);
  world.Send(session, Op::kCreate, {{1, 0, 0, kBlockSize}});
  world.Turn();
  ASSERT_GE(InCondition(world.engine->Pool(), PoolCondition::kMaking), 1u);
  EXPECT_EQ(world.engine->Pool().windows.front().job, gone);
  world.EndSession(session);
  world.Turns(3);
  const JobId next = world.OpenJob();
  const PoolView view = world.engine->Pool();
  ASSERT_GE(InCondition(view, PoolCondition::kMaking), 1u);
  for (const WindowView& window : view.windows) EXPECT_EQ(window.job, JobId{});
  EXPECT_EQ(Of(view, next).held(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
