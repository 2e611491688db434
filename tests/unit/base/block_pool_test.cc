#include "daemon/base/block_pool.h"

#include <random>

#include <gtest/gtest.h>

namespace tier::base {
namespace {

constexpr uint16_t kWhole = kPagesPerBlock;

std::vector<PageRun> Allocate(BlockPool* pool, uint32_t blocks, uint32_t tail_pages) {
  std::vector<PageRun> runs;
  EXPECT_TRUE(pool->TryAllocate(blocks, tail_pages, &runs));
  pool->CheckInvariants();
  return runs;
}

TEST(BlockPool, AnEmptyPoolRefusesEverything) {
  BlockPool pool;
  std::vector<PageRun> runs;
  EXPECT_FALSE(pool.TryAllocate(1, 0, &runs));
  EXPECT_FALSE(pool.TryAllocate(0, 1, &runs));
  EXPECT_TRUE(pool.TryAllocate(0, 0, &runs));
  EXPECT_TRUE(runs.empty());
  EXPECT_FALSE(pool.TryAllocateRun(1));
  EXPECT_FALSE(pool.TryTake({0, 0, 1}));
  EXPECT_EQ(pool.free_pages(), 0U);
  pool.CheckInvariants();
}

TEST(BlockPool, ATailThatNeedsANewSlotBlockLiesBehindItsRun) {
  BlockPool pool;
  pool.AddRegion(0, 16, RegionUse::kSlotsFirst);
  const auto runs = Allocate(&pool, 3, 100);
  ASSERT_EQ(runs.size(), 4U);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(runs[i], (PageRun{i, 0, kWhole}));
  EXPECT_EQ(runs[3], (PageRun{3, 0, 100}));
  EXPECT_EQ(pool.slot_block_count(), 1U);
  EXPECT_EQ(pool.free_pages(), 12U * 512 + 412);
}

TEST(BlockPool, ATailAloneIsASlot) {
  BlockPool pool;
  pool.AddRegion(0, 2, RegionUse::kSlotsFirst);
  EXPECT_EQ(Allocate(&pool, 0, 7).front(), (PageRun{0, 0, 7}));
  EXPECT_EQ(Allocate(&pool, 0, 8).front(), (PageRun{0, 7, 8}));
}

TEST(BlockPool, ATailCostsNoBlockWhileASlotBlockHasRoom) {
  BlockPool pool;
  pool.AddRegion(0, 8, RegionUse::kSlotsFirst);
  (void)Allocate(&pool, 1, 100);
  const auto runs = Allocate(&pool, 6, 412);
  EXPECT_EQ(runs.back(), (PageRun{1, 100, 412}));
  EXPECT_EQ(pool.free_pages(), 0U);
}

TEST(BlockPool, ATailGoesBehindItsRunWhereASlotBlockIsFreeThere) {
  BlockPool pool;
  pool.AddRegion(0, 6, RegionUse::kSlotsFirst);
  const auto first = Allocate(&pool, 2, 100);     // Blocks 0 1, tail in 2.
  const PageRun later = pool.TryAllocateRun(50);  // In 2 too, behind that tail.
  ASSERT_EQ(later, (PageRun{2, 100, 50}));
  for (const PageRun& run : first) pool.Free(run);  // 0 1 free, head of 2 free.
  const auto again = Allocate(&pool, 2, 60);
  EXPECT_EQ(again[1], (PageRun{1, 0, kWhole}));
  EXPECT_EQ(again[2], (PageRun{2, 0, 60}));
}

TEST(BlockPool, ScatteredBlocksAreAsGoodAsARunAndComeInAscendingOrder) {
  BlockPool pool;
  pool.AddRegion(0, 10, RegionUse::kSlotsFirst);
  auto all = Allocate(&pool, 10, 0);
  for (const uint32_t block : {9U, 1U, 4U, 5U, 7U}) pool.Free(all[block]);
  const auto runs = Allocate(&pool, 5, 0);
  ASSERT_EQ(runs.size(), 5U);
  const uint32_t expected[] = {1, 4, 5, 7, 9};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(runs[i].block, expected[i]);
}

TEST(BlockPool, RunsArePreferredOverLowerScatteredBlocks) {
  BlockPool pool;
  pool.AddRegion(0, 10, RegionUse::kSlotsFirst);
  auto all = Allocate(&pool, 10, 0);
  for (const uint32_t block : {0U, 2U, 6U, 7U, 8U}) pool.Free(all[block]);
  const auto runs = Allocate(&pool, 3, 0);
  EXPECT_EQ(runs.front().block, 6U);
  EXPECT_EQ(runs.back().block, 8U);
}

TEST(BlockPool, RunsCrossAdjacentRegions) {
  BlockPool pool;
  pool.AddRegion(4, 4, RegionUse::kSlotsFirst);
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  const auto runs = Allocate(&pool, 8, 0);
  EXPECT_EQ(runs.front().block, 0U);
  EXPECT_EQ(runs.back().block, 7U);
}

TEST(BlockPool, ARefusalLeavesEverythingAsItWas) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  std::vector<PageRun> runs = {{77, 0, 1}};
  EXPECT_FALSE(pool.TryAllocate(4, 1, &runs));
  EXPECT_FALSE(pool.TryAllocate(5, 0, &runs));
  EXPECT_EQ(runs.size(), 1U);
  EXPECT_EQ(pool.free_block_count(), 4U);
  EXPECT_TRUE(pool.TryAllocate(3, 511, &runs));
  EXPECT_EQ(runs.size(), 5U);
}

TEST(BlockPool, HugetlbRegionsHoldWholeBlocksOnly) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kBlocksOnly);
  std::vector<PageRun> runs;
  EXPECT_FALSE(pool.TryAllocateRun(1));
  EXPECT_FALSE(pool.TryAllocate(1, 1, &runs));
  EXPECT_FALSE(pool.TryTake({0, 0, 1}));
  EXPECT_TRUE(pool.TryTake({0, 0, kWhole}));
  pool.AddRegion(4, 2, RegionUse::kSlotsFirst);
  // Whole blocks come from where no slot can lie, as long as there are any.
  const auto first = Allocate(&pool, 3, 1);
  EXPECT_EQ(first[0].block, 1U);
  EXPECT_EQ(first[3].block, 4U);
  EXPECT_EQ(pool.TryAllocateRun(kWhole).block, 5U);
  EXPECT_FALSE(pool.TryAllocateRun(kWhole));
  pool.CheckInvariants();
}

TEST(BlockPool, ARequestSpansBothKindsOfRegions) {
  BlockPool pool;
  pool.AddRegion(0, 2, RegionUse::kSlotsFirst);
  pool.AddRegion(8, 2, RegionUse::kBlocksOnly);
  const auto runs = Allocate(&pool, 3, 5);
  EXPECT_EQ(runs[0].block, 1U);
  EXPECT_EQ(runs[1].block, 8U);
  EXPECT_EQ(runs[2].block, 9U);
  EXPECT_EQ(runs[3].block, 0U);
}

TEST(BlockPool, BlocksAndSlotsEachFillTheirOwnRegionsFirst) {
  BlockPool pool;
  pool.AddRegion(0, 2, RegionUse::kSlotsFirst);
  pool.AddRegion(4, 3, RegionUse::kBlocksFirst);
  EXPECT_EQ(pool.TryAllocateRun(kWhole).block, 4U);
  EXPECT_EQ(pool.TryAllocateRun(500).block, 0U);
  EXPECT_EQ(pool.TryAllocateRun(500).block, 1U);
  EXPECT_EQ(pool.free_slot_block_count(), 2U);
  EXPECT_EQ(pool.TryAllocateRun(500).block, 5U) << "before the pool says that there is no room";
  pool.AddRegion(2, 1, RegionUse::kSlotsFirst);
  EXPECT_EQ(pool.TryAllocateRun(kWhole).block, 6U);
  EXPECT_EQ(pool.TryAllocateRun(kWhole).block, 2U);
  EXPECT_FALSE(pool.TryAllocateRun(kWhole));
  pool.CheckInvariants();
}

TEST(BlockPool, ScatteredBlocksOfTheirOwnRegionsComeBeforeARunAmongSlots) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  pool.AddRegion(8, 3, RegionUse::kBlocksOnly);
  ASSERT_TRUE(pool.TryTake({9, 0, kWhole}));
  const auto runs = Allocate(&pool, 2, 0);
  EXPECT_EQ(runs[0].block, 8U);
  EXPECT_EQ(runs[1].block, 10U);
}

TEST(BlockPool, ATailLiesBehindItsRunAlsoWhereSlotsHaveTheirOwnRegion) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  pool.AddRegion(8, 4, RegionUse::kBlocksFirst);
  const auto runs = Allocate(&pool, 2, 100);
  EXPECT_EQ(runs[0].block, 8U);
  EXPECT_EQ(runs[2], (PageRun{10, 0, 100}));
}

TEST(BlockPool, ASlotBlockWithoutSlotsIsAWholeBlockAgain) {
  BlockPool pool;
  pool.AddRegion(0, 1, RegionUse::kSlotsFirst);
  const PageRun a = pool.TryAllocateRun(1);
  const PageRun b = pool.TryAllocateRun(511);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(pool.free_pages(), 0U);
  pool.Free(a);
  EXPECT_EQ(pool.free_block_count(), 0U);
  pool.Free(b);
  EXPECT_EQ(pool.slot_block_count(), 0U);
  EXPECT_TRUE(pool.TryAllocateRun(kWhole));
  pool.CheckInvariants();
}

TEST(BlockPool, NearKeepsAStreamSequential) {
  BlockPool pool;
  pool.AddRegion(0, 8, RegionUse::kSlotsFirst);
  EXPECT_EQ(pool.TryAllocateRun(kWhole, 5).block, 5U);
  EXPECT_EQ(pool.TryAllocateRun(kWhole, 5).block, 6U);
  EXPECT_EQ(pool.TryAllocateRun(100, 5).block, 7U);
  EXPECT_EQ(pool.TryAllocateRun(kWhole, 5).block, 0U);
}

TEST(BlockPool, TakeReplaysRunsAndRefusesOverlap) {
  BlockPool pool;
  pool.AddRegion(10, 4, RegionUse::kSlotsFirst);
  EXPECT_TRUE(pool.TryTake({10, 5, 10}));
  EXPECT_FALSE(pool.TryTake({10, 14, 1}));
  EXPECT_FALSE(pool.TryTake({10, 0, kWhole}));
  EXPECT_TRUE(pool.TryTake({10, 0, 5}));
  EXPECT_TRUE(pool.TryTake({11, 0, kWhole}));
  EXPECT_FALSE(pool.TryTake({11, 0, 1}));
  EXPECT_FALSE(pool.TryTake({9, 0, 1}));
  EXPECT_FALSE(pool.TryTake({14, 0, kWhole}));
  EXPECT_FALSE(pool.TryTake({12, 500, 13}));
  EXPECT_FALSE(pool.TryTake({12, 0, 0}));
  EXPECT_FALSE(pool.TryTake({UINT32_MAX, 0, kWhole}));
  EXPECT_FALSE(pool.TryTake({12, 1, kWhole}));
  EXPECT_EQ(pool.used_pages(), 15U + 512);
  pool.CheckInvariants();
}

TEST(BlockPool, RegionsGoAsTheyCameOnceEmpty) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  pool.AddRegion(512, 4, RegionUse::kSlotsFirst);
  const auto runs = Allocate(&pool, 5, 0);
  EXPECT_FALSE(pool.RegionEmpty(0));
  EXPECT_FALSE(pool.RegionEmpty(512));
  pool.Free(runs[4]);
  EXPECT_TRUE(pool.RegionEmpty(512));
  pool.RemoveRegion(512);
  EXPECT_EQ(pool.free_pages(), 0U);
  pool.AddRegion(512, 4, RegionUse::kBlocksOnly);
  EXPECT_EQ(pool.free_block_count(), 4U);
  pool.CheckInvariants();
}

TEST(BlockPool, RegionsAreFoundFromTheHighestDown) {
  BlockPool pool;
  EXPECT_EQ(pool.RegionBelow(UINT32_MAX), std::nullopt);
  for (const uint32_t first : {512U, 0U, 8U}) pool.AddRegion(first, 4, RegionUse::kSlotsFirst);
  EXPECT_EQ(pool.RegionBelow(UINT32_MAX), 512U);
  EXPECT_EQ(pool.RegionBelow(513), 512U);
  EXPECT_EQ(pool.RegionBelow(512), 8U);
  EXPECT_EQ(pool.RegionBelow(8), 0U);
  EXPECT_EQ(pool.RegionBelow(0), std::nullopt);
}

TEST(BlockPool, AMovedPoolKeepsItsBooks) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  const auto runs = Allocate(&pool, 1, 1);
  BlockPool other = std::move(pool);
  for (const PageRun& run : runs) other.Free(run);
  EXPECT_EQ(other.free_block_count(), 4U);
}

TEST(BlockPool, SixteenTebibytesOfBlocksAreHandledWithoutScans) {
  BlockPool pool;
  constexpr uint32_t kBlocks = 8U << 20;
  pool.AddRegion(0, kBlocks, RegionUse::kSlotsFirst);
  std::vector<PageRun> runs;
  ASSERT_TRUE(pool.TryAllocate(kBlocks - 1000, 0, &runs));
  std::minstd_rand random(1);
  for (int i = 0; i < 100'000; ++i) {
    const size_t at = random() % runs.size();
    pool.Free(runs[at]);
    runs[at] = pool.TryAllocateRun(kWhole, runs[at].block + 1);
    ASSERT_TRUE(runs[at]);
  }
  EXPECT_EQ(pool.free_block_count(), 1000U);
}

TEST(BlockPool, TheLongestFreeRunIsThatOfTheBestUse) {
  BlockPool pool;
  EXPECT_EQ(pool.longest_free_run(), 0U);
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  pool.AddRegion(100, 8, RegionUse::kBlocksOnly);
  pool.AddRegion(108, 2, RegionUse::kBlocksOnly);  // Right behind it: their free blocks are one run.
  EXPECT_EQ(pool.longest_free_run(), 10U);
  EXPECT_EQ(pool.block_count(RegionUse::kBlocksOnly), 10U);
  EXPECT_EQ(pool.block_count(RegionUse::kBlocksFirst), 0U);
  EXPECT_EQ(pool.block_count(RegionUse::kSlotsFirst), 4U);
  ASSERT_TRUE(pool.TryTake({105, 0, kWhole}));
  EXPECT_EQ(pool.longest_free_run(), 5U);
  ASSERT_TRUE(pool.TryTake({102, 0, kWhole}));
  EXPECT_EQ(pool.longest_free_run(), 4U);
  ASSERT_TRUE(pool.TryTake({0, 0, 1}));
  EXPECT_EQ(pool.longest_free_run(), 4U) << "blocks 106 to 109";
  EXPECT_EQ(pool.block_count(RegionUse::kSlotsFirst), 4U) << "one of them holds a slot";
}

TEST(BlockPool, BlocksSideBySideOrNone) {
  BlockPool pool;
  pool.AddRegion(0, 8, RegionUse::kBlocksFirst);
  ASSERT_TRUE(pool.TryTake({3, 0, kWhole}));
  std::vector<PageRun> runs;
  EXPECT_FALSE(pool.TryAllocateSideBySide(5, &runs)) << "seven are free, and no five of them lie together";
  EXPECT_TRUE(runs.empty());
  EXPECT_EQ(pool.FindFreeRun(5), std::nullopt);
  EXPECT_EQ(pool.FindFreeRun(4), 4U);
  EXPECT_EQ(pool.FindFreeRun(3), 0U);
  ASSERT_TRUE(pool.TryAllocateSideBySide(4, &runs));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(runs[i], (PageRun{4 + i, 0, kWhole}));
  pool.CheckInvariants();
}

TEST(BlockPool, OpenRegionsMayFollowEachOther) {
  BlockPool pool;
  pool.AddRegion(10, 4, RegionUse::kBlocksFirst);
  pool.AddRegion(14, 4, RegionUse::kSlotsFirst);
  EXPECT_TRUE(pool.InOpenRegions(10, 8));
  EXPECT_TRUE(pool.InOpenRegions(13, 2));
  EXPECT_FALSE(pool.InOpenRegions(9, 2));
  EXPECT_FALSE(pool.InOpenRegions(17, 2));
  EXPECT_FALSE(pool.InOpenRegions(0, 1));
  pool.SetClosed(14, true);
  EXPECT_TRUE(pool.InOpenRegions(10, 4));
  EXPECT_FALSE(pool.InOpenRegions(13, 2));
}

TEST(BlockPoolDeathTest, RefusesWhatOnlyABugCouldAsk) {
  BlockPool pool;
  pool.AddRegion(0, 4, RegionUse::kSlotsFirst);
  const PageRun whole = pool.TryAllocateRun(kWhole);
  const PageRun slot = pool.TryAllocateRun(3);
  EXPECT_DEATH(pool.AddRegion(3, 1, RegionUse::kBlocksOnly), "CHECK failed");
  EXPECT_DEATH(pool.RemoveRegion(0), "CHECK failed");
  EXPECT_DEATH(pool.RemoveRegion(1), "CHECK failed");
  EXPECT_DEATH(pool.Free({slot.block, 0, kWhole}), "CHECK failed");
  EXPECT_DEATH(pool.Free({whole.block, 0, 5}), "no slot block");
  pool.Free(whole);
  EXPECT_DEATH(pool.Free(whole), "CHECK failed");
  EXPECT_DEATH((void)pool.TryAllocateRun(513), "CHECK failed");
  std::vector<PageRun> runs;
  EXPECT_DEATH((void)pool.TryAllocate(1, 512, &runs), "CHECK failed");
}

}  // namespace
}  // namespace tier::base
