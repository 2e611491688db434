#include "daemon/base/slot_blocks.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

TEST(SlotBlocks, PrefersTheBlockWithTheShortestHoleThatFits) {
  SlotBlocks blocks;
  blocks.Add(1);
  ASSERT_TRUE(blocks.TryAllocate(500));
  blocks.Add(2);
  blocks.Take({2, 0, 300});
  EXPECT_EQ(blocks.TryAllocate(12).block, 1U);
  EXPECT_EQ(blocks.TryAllocate(12).block, 2U);
  EXPECT_FALSE(blocks.CanAllocate(201));
  EXPECT_TRUE(blocks.CanAllocate(200));
  blocks.CheckInvariants();
}

TEST(SlotBlocks, FreedHolesMergeWithBothNeighbours) {
  SlotBlocks blocks;
  blocks.Add(9);
  const PageRun a = blocks.TryAllocate(100);
  const PageRun b = blocks.TryAllocate(100);
  const PageRun c = blocks.TryAllocate(100);
  const PageRun rest = blocks.TryAllocate(212);
  ASSERT_TRUE(a && b && c && rest);
  EXPECT_FALSE(blocks.CanAllocate(1));
  EXPECT_FALSE(blocks.Free(a));
  EXPECT_FALSE(blocks.Free(c));
  EXPECT_FALSE(blocks.CanAllocate(101));
  EXPECT_FALSE(blocks.Free(b));
  EXPECT_TRUE(blocks.CanAllocate(300));
  blocks.CheckInvariants();
  EXPECT_TRUE(blocks.Free(rest));
  blocks.Remove(9);
  EXPECT_EQ(blocks.count(), 0U);
  EXPECT_EQ(blocks.free_pages(), 0U);
  blocks.CheckInvariants();
}

TEST(SlotBlocks, CountsWhatIsFreeBesideBoundSlots) {
  SlotBlocks blocks;
  blocks.Add(3);
  blocks.Take({3, 0, 100});
  blocks.Take({3, 100, 12});
  blocks.Bind(3);
  EXPECT_EQ(blocks.bound_free_pages(), 400U);
  blocks.Bind(3);
  EXPECT_EQ(blocks.bound_free_pages(), 400U) << "once a block";
  blocks.Take({3, 200, 50});
  EXPECT_EQ(blocks.bound_free_pages(), 350U);
  EXPECT_FALSE(blocks.Free({3, 200, 50}));
  blocks.Unbind(3);
  EXPECT_EQ(blocks.bound_free_pages(), 400U);
  blocks.CheckInvariants();
  blocks.Unbind(3);
  EXPECT_EQ(blocks.bound_free_pages(), 0U);
  blocks.CheckInvariants();
}

TEST(SlotBlocks, ListsTheEmptiestBlocksAndTheirSlots) {
  SlotBlocks blocks;
  for (const uint32_t block : {4U, 5U, 6U}) blocks.Add(block);
  blocks.Take({4, 0, 500});
  blocks.Take({5, 100, 7});
  blocks.Take({5, 107, 1});
  blocks.Take({5, 300, 2});
  blocks.Take({6, 0, 512 - 100});
  std::vector<SparseBlock> sparse;
  blocks.ListSparse(false, 2, &sparse);
  ASSERT_EQ(sparse.size(), 2U);
  EXPECT_EQ(sparse[0].block, 5U);
  EXPECT_EQ(sparse[0].free_pages, 502U);
  EXPECT_EQ(sparse[1].block, 6U);
  std::vector<PageRun> slots;
  blocks.ListSlots(5, &slots);
  EXPECT_EQ(slots, (std::vector<PageRun>{{5, 100, 7}, {5, 107, 1}, {5, 300, 2}})) << "neighbours are told apart";
  blocks.Take({4, 500, 12});
  sparse.clear();
  blocks.ListSparse(false, 8, &sparse);
  EXPECT_EQ(sparse.size(), 2U) << "a full block is not sparse";
  blocks.CheckInvariants();
}

std::vector<uint32_t> Sparse(const SlotBlocks& blocks, bool bound, size_t most = 100) {
  blocks.CheckInvariants();
  std::vector<SparseBlock> sparse;
  blocks.ListSparse(bound, most, &sparse);
  std::vector<uint32_t> numbers;
  for (const SparseBlock& block : sparse) numbers.push_back(block.block);
  return numbers;
}
using Numbers = std::vector<uint32_t>;

TEST(SlotBlocks, BlocksWithABoundSlotHideNoOthers) {
  SlotBlocks blocks;
  for (uint32_t block = 0; block < 64; ++block) {
    blocks.Add(block);
    blocks.Take({block, 0, 1});
    blocks.Bind(block);
  }
  blocks.Add(100);
  blocks.Take({100, 0, 500});
  EXPECT_EQ(Sparse(blocks, false, 64), Numbers{100});
  EXPECT_EQ(Sparse(blocks, true, 64).size(), 64U);
  blocks.Unbind(7);
  EXPECT_EQ(Sparse(blocks, false, 64), (Numbers{7, 100}));
  EXPECT_EQ(Sparse(blocks, true, 64).size(), 63U);
}

TEST(SlotBlocks, ABlockIsListedAsBoundWhateverChangesInIt) {
  SlotBlocks blocks;
  blocks.Add(1);
  blocks.Take({1, 0, 10});
  blocks.Bind(1);
  blocks.Bind(1);
  EXPECT_EQ(Sparse(blocks, true), Numbers{1});
  blocks.Take({1, 10, 502});
  EXPECT_EQ(Sparse(blocks, true), Numbers{}) << "it is full";
  blocks.Unbind(1);
  EXPECT_FALSE(blocks.Free({1, 10, 502}));
  EXPECT_EQ(Sparse(blocks, true), Numbers{1}) << "one of two is bound still";
  blocks.SetClosed(1, true);
  EXPECT_EQ(Sparse(blocks, true), Numbers{});
  blocks.Unbind(1);
  EXPECT_EQ(Sparse(blocks, false), Numbers{});
  blocks.SetClosed(1, false);
  EXPECT_EQ(Sparse(blocks, false), Numbers{1});
  blocks.Take({1, 10, 502});
  blocks.Bind(1);
  blocks.Unbind(1);
  EXPECT_FALSE(blocks.Free({1, 10, 502}));
  EXPECT_EQ(Sparse(blocks, false), Numbers{1}) << "it was bound while it was full";
}

TEST(SlotBlocks, EntriesOfRemovedBlocksAreUsedAgain) {
  SlotBlocks blocks;
  for (uint32_t block = 0; block < 3000; block += 100) {
    blocks.Add(block);
    const PageRun run = blocks.TryAllocate(7);
    ASSERT_EQ(run.block, block);
    EXPECT_TRUE(blocks.Free(run));
    blocks.Remove(block);
    EXPECT_FALSE(blocks.Contains(block));
  }
  blocks.CheckInvariants();
}

TEST(SlotBlocksDeathTest, TellsADoubleAndAPartialFreeFromARightOne) {
  SlotBlocks blocks;
  blocks.Add(0);
  const PageRun a = blocks.TryAllocate(10);
  const PageRun b = blocks.TryAllocate(10);
  ASSERT_TRUE(a && b);
  EXPECT_DEATH((void)blocks.Free({a.block, a.page, 5}), "no such slot");
  EXPECT_DEATH((void)blocks.Free({a.block, a.page, 20}), "no such slot");
  EXPECT_DEATH((void)blocks.Free({a.block, static_cast<uint16_t>(a.page + 1), 9}), "no such slot");
  EXPECT_FALSE(blocks.Free(a));
  EXPECT_DEATH((void)blocks.Free(a), "freed twice");
  EXPECT_DEATH((void)blocks.Free({7, 0, 1}), "no slot block");
}

}  // namespace
}  // namespace tier::base
