#include "daemon/tiering/tables/hash_buckets.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/tiering/tables/key_record.h"

namespace tier::tiering {
namespace {

// Records whose hash is what `hashes` says of their index.
class Buckets : public ::testing::Test {
 protected:
  uint64_t HashOf(KeyIndex index) const { return hashes_[Value(index)]; }
  KeyIndex Add(uint64_t hash) {
    const KeyIndex index{static_cast<uint32_t>(hashes_.size())};
    hashes_.push_back(hash);
    buckets_.Add(index, hash, [&](KeyIndex each) { return HashOf(each); });
    return index;
  }
  KeyIndex Find(uint64_t hash) const {
    return buckets_.Find(hash, [&](KeyIndex each) { return HashOf(each) == hash; });
  }
  void TearDown() override {
    buckets_.CheckInvariants([&](KeyIndex each) { return HashOf(each); });
  }

  std::vector<uint64_t> hashes_;
  HashBuckets<KeyIndex> buckets_;
};

TEST_F(Buckets, FindNothingAtFirst) {
  EXPECT_EQ(Find(0), kNoKey);
  EXPECT_EQ(buckets_.size(), 0u);
}

TEST_F(Buckets, FindEachRecordHoweverManyBucketsWereSplit) {
  for (uint64_t i = 0; i < 1000; ++i) {
    Add(i * 0x9e3779b97f4a7c15);
    if (i % 50 != 0) continue;
    for (uint64_t k = 0; k <= i; ++k) ASSERT_EQ(Find(k * 0x9e3779b97f4a7c15), KeyIndex{static_cast<uint32_t>(k)}) << i;
  }
  EXPECT_EQ(Find(1), kNoKey);
  EXPECT_EQ(buckets_.size(), 1000u);
}

TEST_F(Buckets, FindEachOfManyRecordsInOneBucket) {
  for (uint64_t i = 0; i < 100; ++i) Add(i << 40);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(Find(i << 40), KeyIndex{static_cast<uint32_t>(i)});
}

TEST_F(Buckets, DoNotFindWhatWasRemoved) {
  for (uint64_t i = 0; i < 100; ++i) Add(i);
  for (uint64_t i = 0; i < 100; i += 2) buckets_.Remove(KeyIndex{static_cast<uint32_t>(i)}, i);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Find(i), i % 2 == 0 ? kNoKey : KeyIndex{static_cast<uint32_t>(i)});
  }
  EXPECT_EQ(buckets_.size(), 50u);
}

TEST_F(Buckets, GoBackToTheSystemWhenRecordsAreGone) {
  constexpr uint64_t kCount = 20'000;
  const auto hash = [](uint64_t i) { return i * 0x9e3779b97f4a7c15; };
  for (uint64_t i = 0; i < kCount; ++i) Add(hash(i));
  const uint64_t full = buckets_.bytes();
  EXPECT_FALSE(buckets_.ShrinkSome());
  for (uint64_t i = 50; i < kCount; ++i) buckets_.Remove(KeyIndex{static_cast<uint32_t>(i)}, hash(i));
  EXPECT_EQ(buckets_.bytes(), full);
  uint64_t steps = 0;
  for (; buckets_.ShrinkSome(); ++steps) {
    for (uint64_t i = 0; i < 50; ++i) ASSERT_EQ(Find(hash(i)), KeyIndex{static_cast<uint32_t>(i)}) << steps;
    buckets_.CheckInvariants([&](KeyIndex each) { return HashOf(each); });
  }
  EXPECT_GT(steps, 10u) << "each does a part";
  EXPECT_LT(buckets_.bytes(), full / 10);
  for (uint64_t i = kCount; i < 2 * kCount; ++i) Add(hash(i));
  for (uint64_t i = kCount; i < 2 * kCount; ++i) ASSERT_EQ(Find(hash(i)), KeyIndex{static_cast<uint32_t>(i)});
}

TEST_F(Buckets, FindTheRecordThatMatchesAmongThoseOfOneHash) {
  Add(7);
  const KeyIndex second = Add(7);
  EXPECT_EQ(buckets_.Find(7, [&](KeyIndex each) { return each == second; }), second);
}

}  // namespace
}  // namespace tier::tiering
