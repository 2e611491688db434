#include "daemon/base/block_index.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kNone = BlockIndex::kNone;

TEST(BlockIndex, WithoutBlocksItFindsNone) {
  const BlockIndex index;
  EXPECT_EQ(index.Find(0), kNone);
  EXPECT_EQ(index.Find(UINT32_MAX), kNone);
  index.CheckInvariants(0);
}

TEST(BlockIndex, WhileItGrowsEveryBlockStaysFound) {
  BlockIndex index;
  for (uint32_t count = 1; count <= 300; ++count) {
    index.Insert(count * 700, count);
    index.CheckInvariants(count);
    for (uint32_t i = 1; i <= count; ++i) ASSERT_EQ(index.Find(i * 700), i) << count;
    ASSERT_EQ(index.Find(count * 700 + 1), kNone) << "of a group that is there";
    ASSERT_EQ(index.Find(count * 700 + 4), kNone);
  }
}

TEST(BlockIndex, FourBlocksSideBySideShareAGroupThatGoesWithTheLast) {
  BlockIndex index;
  for (uint32_t block = 8; block < 16; ++block) index.Insert(block, block + 100);
  EXPECT_EQ(index.group_count(), 2U);
  for (uint32_t block = 8; block < 12; ++block) {
    EXPECT_EQ(index.group_count(), 2U);
    index.Remove(block);
  }
  EXPECT_EQ(index.group_count(), 1U);
  index.CheckInvariants(4);
  EXPECT_EQ(index.Find(11), kNone);
  EXPECT_EQ(index.Find(12), 112U);
  index.Insert(11, 7);
  EXPECT_EQ(index.Find(11), 7U);
  EXPECT_EQ(index.Find(10), kNone) << "a group that is used again is empty";
}

// All blocks, windows of four between those of others, and single blocks: as owners have them. By chance 1.25 to 1.4
// would be expected.
TEST(BlockIndex, ListsAreShortHoweverTheBlocksLie) {
  for (const uint32_t stride : {4U, 8U, 64U, 100U, 256U, 4096U, 32768U}) {
    BlockIndex index;
    for (uint32_t i = 0; i < 20'000; ++i) index.Insert(i * stride, i);
    EXPECT_LT(static_cast<double>(index.CountSteps()), 1.5 * index.group_count()) << "stride " << stride;
  }
}

TEST(BlockIndex, OverAnyHistoryItFindsWhatTheModelHas) {
  std::minstd_rand random(20261128);
  BlockIndex index;
  std::map<uint32_t, uint32_t> model;
  for (uint32_t step = 0; step < 50'000; ++step) {
    // Windows of four blocks, a few hundred of them.
    const auto block = static_cast<uint32_t>(random() % 400 * 256 + random() % 4);
    const auto found = model.find(block);
    ASSERT_EQ(index.Find(block), found == model.end() ? kNone : found->second);
    if (found != model.end()) {
      index.Remove(block);
      model.erase(found);
    } else if (model.size() < step / 50) {
      index.Insert(block, model[block] = step);
    }
    if (step % 1000 == 0) index.CheckInvariants(model.size());
  }
}

TEST(BlockIndexDeathTest, ABlockIsThereOnce) {
  BlockIndex index;
  index.Insert(5, 1);
  EXPECT_DEATH(index.Insert(5, 2), "was 1");
  EXPECT_DEATH(index.Remove(6), "not there");
  index.Remove(5);
  EXPECT_DEATH(index.Remove(5), "not there");
}

}  // namespace
}  // namespace tier::base
