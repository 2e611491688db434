#include "daemon/tiering/tables/intern_table.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/message.h"

namespace tier::tiering {
namespace {

InternTable::Limits Keys(uint32_t keys) { return {.keys_max = keys, .bytes_max = UINT64_MAX}; }

bool Always(uint64_t) { return true; }
bool Never(uint64_t) { return false; }

TEST(InternTable, TheSameKeyHasTheSameIdInEveryTable) {
  InternTable first;
  InternTable second;
  (void)second.Intern("something else", Keys(10), Always);  // The order of keys does not matter.
  EXPECT_EQ(*first.Intern("layer.0.weight", Keys(10), Always), *second.Intern("layer.0.weight", Keys(10), Always));
  EXPECT_EQ(*first.Intern("layer.0.weight", Keys(10), Always), *first.Intern("layer.0.weight", Keys(10), Always));
  EXPECT_EQ(first.size(), 1u);
}

TEST(InternTable, KeysThatDifferHaveIdsThatDiffer) {
  InternTable table;
  std::set<uint64_t> ids;
  for (int i = 0; i < 10'000; ++i)
    ids.insert(*table.Intern("optimizer.state." + std::to_string(i), Keys(20'000), Always));
  EXPECT_EQ(ids.size(), 10'000u);
  EXPECT_FALSE(ids.contains(0));
}

TEST(InternTable, KnowsTheKeyOfAnId) {
  InternTable table;
  const uint64_t id = *table.Intern("weights", Keys(10), Always);
  EXPECT_EQ(table.KeyOf(id), "weights");
  EXPECT_EQ(table.KeyOf(id + 1), "");
}

TEST(InternTable, RefusesMoreKeysThanItsMaximumWithFigures) {
  InternTable table;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), Keys(3), Always).has_value());
  const Result<uint64_t> refused = table.Intern("one too many", Keys(3), Always);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("3"), std::string::npos);
  EXPECT_TRUE(table.Intern("key1", Keys(3), Always).has_value()) << "known keys are still found";
}

TEST(InternTable, RefusesMoreBytesOfKeysThanItsMaximumWithFigures) {
  InternTable table;
  const InternTable::Limits limits{.keys_max = 10, .bytes_max = 2048};
  EXPECT_TRUE(table.Restore(std::string(1000, 'a'), 7).has_value());
  EXPECT_TRUE(table.Restore(std::string(1000, 'a'), 7).has_value());
  EXPECT_EQ(table.bytes(), 1000u) << "what is restored counts, once";
  ASSERT_TRUE(table.Intern(std::string(1000, 'b'), limits, Always).has_value());
  ASSERT_TRUE(table.Intern(std::string(1000, 'b'), limits, Always).has_value()) << "known keys are still found";
  const Result<uint64_t> refused = table.Intern(std::string(49, 'c'), limits, Always);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("2000 bytes, with this one 2049, at most 2048"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(table.Intern(std::string(48, 'c'), limits, Always).has_value());
  EXPECT_EQ(table.bytes(), 2048u);
}

TEST(InternTable, AcceptsTheLongestKey) {
  InternTable table;
  const std::string key(proto::kKeyLengthMax, 'x');
  EXPECT_EQ(table.KeyOf(*table.Intern(key, Keys(1), Always)), key);
}

TEST(InternTable, DropsTheOldestKeysWithoutTensorsBeforeItIsFull) {
  InternTable table;
  const uint64_t kept = *table.Intern("kept", Keys(64), Never);
  const auto in_use = [&](uint64_t id) { return id == kept; };
  const uint64_t first = *table.Intern("step 0", Keys(64), in_use);
  for (int step = 1; step < 10'000; ++step) {
    ASSERT_TRUE(table.Intern("step " + std::to_string(step), Keys(64), in_use).has_value()) << step;
    ASSERT_LE(table.size(), 48u);
  }
  EXPECT_EQ(table.KeyOf(kept), "kept");
  EXPECT_EQ(table.KeyOf(first), "");
  EXPECT_EQ(*table.Intern("step 0", Keys(64), in_use), first) << "it has the id that it had";
  EXPECT_EQ(*table.Intern("step 9999", Keys(64), in_use), *InternTable().Intern("step 9999", Keys(1), Always));
}

TEST(InternTable, DropsKeysForTheBytesOfLongOnesToo) {
  InternTable table;
  const InternTable::Limits limits{.keys_max = 1000, .bytes_max = 4096};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(table.Intern(std::string(500, 'k') + std::to_string(i), limits, Never).has_value()) << i;
  }
  EXPECT_LE(table.bytes(), limits.bytes_max);
}

TEST(InternTable, FindsWhatMayBeDroppedBehindWhatMayNot) {
  InternTable table;
  std::set<uint64_t> used;
  const auto in_use = [&](uint64_t id) { return used.contains(id); };
  for (int i = 0; i < 700; ++i) used.insert(*table.Intern("used" + std::to_string(i), Keys(1000), in_use));
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(table.Intern("unused" + std::to_string(i), Keys(1000), in_use).has_value()) << i;
  }
  for (const uint64_t id : used) EXPECT_NE(table.KeyOf(id), "");
}

TEST(InternTable, KeepsAKeyThatAnotherHadToPass) {
  const uint64_t wanted = *InternTable().Intern("late", Keys(10), Always);
  InternTable table;
  ASSERT_TRUE(table.Restore("early", wanted).has_value());
  const uint64_t instead = *table.Intern("late", Keys(10), Always);
  EXPECT_NE(instead, wanted);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), Keys(16), Never).has_value()) << i;
  EXPECT_EQ(table.KeyOf(instead), "") << "forgotten";
  EXPECT_EQ(*table.Intern("late", Keys(16), Never), instead);
}

TEST(InternTable, KeepsWhatARestoredKeyHadToPass) {
  const uint64_t wanted = *InternTable().Intern("late", Keys(10), Always);
  InternTable before;
  ASSERT_TRUE(before.Restore("early", wanted).has_value());
  const uint64_t instead = *before.Intern("late", Keys(10), Always);
  InternTable table;
  ASSERT_TRUE(table.Restore("late", instead).has_value());
  ASSERT_TRUE(table.Restore("early", wanted).has_value());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), Keys(16), Never).has_value()) << i;
  EXPECT_EQ(*table.Intern("late", Keys(16), Never), instead);
}

TEST(InternTable, RestoresPairsAndRefusesContradictions) {
  InternTable table;
  EXPECT_TRUE(table.Restore("a", 7).has_value());
  EXPECT_TRUE(table.Restore("a", 7).has_value());
  EXPECT_EQ(table.Restore("b", 7).error().code, Code::kCorrupt);
  EXPECT_EQ(table.Restore("b", 0).error().code, Code::kCorrupt);
  EXPECT_EQ(table.Restore("a", 8).error().code, Code::kCorrupt) << "a key has one id";
  EXPECT_EQ(*table.Intern("a", Keys(10), Always), 7u);
}

TEST(InternTable, KeepsARestoredKeyWhoseFirstHashIsFree) {
  const uint64_t wanted = *InternTable().Intern("late", Keys(10), Always);
  InternTable before;
  ASSERT_TRUE(before.Restore("early", wanted).has_value());
  const uint64_t instead = *before.Intern("late", Keys(10), Always);
  InternTable table;
  ASSERT_TRUE(table.Restore("late", instead).has_value()) << "and no tensor of the other key was persisted";
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), Keys(16), Never).has_value()) << i;
  EXPECT_EQ(*table.Intern("late", Keys(16), Never), instead);
  EXPECT_EQ(table.KeyOf(wanted), "");
}

TEST(InternTable, AKeyOfSeveralCellsIsReadBackWhole) {
  InternTable table;
  for (const size_t length : {size_t{1}, KeyText::kBytes, KeyText::kBytes + 1, 5 * KeyText::kBytes}) {
    std::string key(length, 'x');
    key.back() = 'y';
    EXPECT_EQ(table.KeyOf(*table.Intern(key, Keys(10), Always)), key) << length;
    EXPECT_NE(*table.Intern(std::string(length, 'x'), Keys(10), Always), *table.Intern(key, Keys(10), Always));
  }
  EXPECT_EQ(table.texts(), 2u * (1 + 1 + 2 + 5));
  table.CheckInvariants();
}

}  // namespace
}  // namespace tier::tiering
