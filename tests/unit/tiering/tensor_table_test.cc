#include "daemon/tiering/tables/tensor_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tier::tiering {
namespace {

constexpr JobIndex kJob{5};
constexpr JobIndex kOtherJob{6};

class TensorTableTest : public ::testing::Test {
 protected:
  TensorTableTest() : table(tensors, 0x5eed) {}

  TensorIndex Add(uint64_t space, uint64_t id) {
    const TensorIndex index = tensors.Allocate();
    tensors.Edit(index).job = kJob;
    tensors.Edit(index).space = space;
    tensors.Edit(index).id = id;
    table.Insert({kJob, space, id}, index);
    return index;
  }

  void Remove(uint64_t id) {
    const TensorIndex index = table.Find({kJob, 0, id});
    ASSERT_NE(index, kNoTensor) << id;
    table.Erase({kJob, 0, id});
    tensors.Free(index);
  }

  TensorSlab tensors;
  TensorTable table;
};

TEST_F(TensorTableTest, FindsWhatWasInsertedAndNothingElse) {
  const TensorIndex index = Add(1, 42);
  EXPECT_EQ(table.Find({kJob, 1, 42}), index);
  EXPECT_EQ(table.Find({kJob, 0, 42}), kNoTensor);
  EXPECT_EQ(table.Find({kJob, 1, 43}), kNoTensor);
  EXPECT_EQ(table.Find({kOtherJob, 1, 42}), kNoTensor);
}

TEST_F(TensorTableTest, GrowsAndStillFindsEverything) {
  std::map<uint64_t, TensorIndex> added;
  for (uint64_t id = 0; id < 50'000; ++id) added[id] = Add(id % 3, id * 4096);
  EXPECT_EQ(table.size(), 50'000u);
  EXPECT_LT(table.size(), table.capacity());
  for (const auto& [id, index] : added) ASSERT_EQ(table.Find({kJob, id % 3, id * 4096}), index);
}

TEST_F(TensorTableTest, WhileItGrowsWhatIsMovedAndWhatIsNotIsFound) {
  const uint64_t small = table.capacity();
  uint64_t count = 0;
  while (table.capacity() == small) Add(0, count++);
  EXPECT_EQ(table.capacity(), 3 * small) << "the entries are moved some at a time";
  uint64_t erased = 0;
  for (uint64_t id = 0; table.capacity() != 2 * small; id += 7) {
    const TensorIndex index = table.Find({kJob, 0, id % count});
    ASSERT_NE(index, kNoTensor) << id;
    table.Erase({kJob, 0, id % count});
    tensors.Free(index);
    ASSERT_EQ(table.Find({kJob, 0, id % count}), kNoTensor) << id;
    Add(0, id % count);
    ASSERT_EQ(table.size(), count);
    ASSERT_LE(++erased, small) << "the old half stays";
  }
  for (uint64_t id = 0; id < count; ++id) ASSERT_NE(table.Find({kJob, 0, id}), kNoTensor) << id;
}

TEST_F(TensorTableTest, ChurnDoesNotGrowItWithoutBound) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> present;
  const uint64_t small = table.capacity();
  for (int i = 0; i < 200'000; ++i) {
    if (present.size() < small / 2) {
      const uint64_t id = random();
      Add(0, id);
      present.push_back(id);
      continue;
    }
    const size_t at = random() % present.size();
    const TensorIndex index = table.Find({kJob, 0, present[at]});
    ASSERT_NE(index, kNoTensor);
    table.Erase({kJob, 0, present[at]});
    tensors.Free(index);
    present[at] = present.back();
    present.pop_back();
  }
  EXPECT_EQ(table.capacity(), small);
  for (const uint64_t id : present) EXPECT_NE(table.Find({kJob, 0, id}), kNoTensor);
}

TEST_F(TensorTableTest, ShrinksAsNamesAreErasedAndStillFindsTheOthers) {
  constexpr uint64_t kCount = 200'000;
  const uint64_t empty = table.bytes();
  for (uint64_t id = 0; id < kCount; ++id) Add(0, id);
  const uint64_t full = table.bytes();
  for (uint64_t id = 0; id + 100 < kCount; ++id) {
    Remove(id);
    if (id % 1000 != 0) continue;
    for (uint64_t other = id + 1; other < kCount; other += 997) ASSERT_NE(table.Find({kJob, 0, other}), kNoTensor);
    ASSERT_EQ(table.Find({kJob, 0, id}), kNoTensor);
  }
  EXPECT_LT(table.bytes(), full / 16);
  while (table.ShrinkSome()) {
  }
  EXPECT_EQ(table.bytes(), empty);
  table.CheckInvariants();
  for (uint64_t id = kCount - 100; id < kCount; ++id) ASSERT_NE(table.Find({kJob, 0, id}), kNoTensor) << id;
}

TEST_F(TensorTableTest, ShrinksWithoutFurtherCalls) {
  for (uint64_t id = 0; id < 100'000; ++id) Add(0, id);
  for (uint64_t id = 0; table.capacity() == 2 * 131072; ++id) Remove(id);
  const uint64_t size = table.size();
  ASSERT_TRUE(table.can_shrink()) << "a move is under way";
  uint64_t steps = 0;
  while (table.ShrinkSome()) ++steps;
  EXPECT_GT(steps, 100u) << "each does a part";
  EXPECT_LT(table.capacity(), 16 * size);
  table.CheckInvariants();
  for (uint64_t id = 100'000 - size; id < 100'000; ++id) ASSERT_NE(table.Find({kJob, 0, id}), kNoTensor) << id;
}

TEST_F(TensorTableTest, AnErasedNameIsGoneAndMayComeBack) {
  Add(0, 1);
  table.Erase({kJob, 0, 1});
  EXPECT_EQ(table.Find({kJob, 0, 1}), kNoTensor);
  const TensorIndex again = Add(0, 1);
  EXPECT_EQ(table.Find({kJob, 0, 1}), again);
}

TEST_F(TensorTableTest, InsertingANameTwiceIsABug) {
  Add(0, 1);
  EXPECT_DEATH(Add(0, 1), "twice");
}

TEST_F(TensorTableTest, IdsThatCollideUnderOneSeedDoNotUnderAnother) {
  const TensorTable other(tensors, 0x0ddb);
  std::vector<uint64_t> chosen;  // As a client that knew the seed would.
  for (uint64_t id = 1; chosen.size() < 64; ++id) {
    if ((table.HashOf({kJob, 1, id}) & 1023) == 0) chosen.push_back(id);
  }
  std::map<uint64_t, uint32_t> buckets;
  for (const uint64_t id : chosen) ++buckets[other.HashOf({kJob, 1, id}) & 1023];
  EXPECT_GT(buckets.size(), 48u);
}

TEST_F(TensorTableTest, SequentialAndAlignedIdsSpreadOverTheTable) {
  // What people choose: small numbers, addresses, multiples of sizes. The low bits of the hash must not care.
  for (const uint64_t stride : {uint64_t{1}, uint64_t{64}, uint64_t{4096}, uint64_t{1} << 32}) {
    std::map<uint64_t, int> buckets;
    for (uint64_t i = 0; i < 4096; ++i) ++buckets[table.HashOf({kJob, 1, i * stride}) & 1023];
    for (const auto& [bucket, count] : buckets) EXPECT_LT(count, 20) << "stride " << stride;
  }
}

}  // namespace
}  // namespace tier::tiering
