#include "daemon/tiering/intern_table.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/message.h"

namespace tier::tiering {
namespace {

InternTable::Limits Keys(uint32_t keys) { return {.keys_max = keys, .bytes_max = UINT64_MAX}; }

TEST(InternTable, TheSameKeyHasTheSameIdInEveryTable) {
  InternTable first;
  InternTable second;
  (void)second.Intern("something else", Keys(10));  // The order of keys does not matter.
  EXPECT_EQ(*first.Intern("layer.0.weight", Keys(10)), *second.Intern("layer.0.weight", Keys(10)));
  EXPECT_EQ(*first.Intern("layer.0.weight", Keys(10)), *first.Intern("layer.0.weight", Keys(10)));
  EXPECT_EQ(first.size(), 1u);
}

TEST(InternTable, KeysThatDifferHaveIdsThatDiffer) {
  InternTable table;
  std::set<uint64_t> ids;
  for (int i = 0; i < 10'000; ++i) ids.insert(*table.Intern("optimizer.state." + std::to_string(i), Keys(20'000)));
  EXPECT_EQ(ids.size(), 10'000u);
  EXPECT_FALSE(ids.contains(0));
}

TEST(InternTable, KnowsTheKeyOfAnId) {
  InternTable table;
  const uint64_t id = *table.Intern("weights", Keys(10));
  EXPECT_EQ(table.KeyOf(id), "weights");
  EXPECT_EQ(table.KeyOf(id + 1), "");
}

TEST(InternTable, RefusesMoreKeysThanItsMaximumWithFigures) {
  InternTable table;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), Keys(3)).has_value());
  const Result<uint64_t> refused = table.Intern("one too many", Keys(3));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("3"), std::string::npos);
  EXPECT_TRUE(table.Intern("key1", Keys(3)).has_value()) << "known keys are still found";
}

TEST(InternTable, RefusesMoreBytesOfKeysThanItsMaximumWithFigures) {
  InternTable table;
  const InternTable::Limits limits{.keys_max = 10, .bytes_max = 2048};
  EXPECT_TRUE(table.Restore(std::string(1000, 'a'), 7).has_value());
  EXPECT_TRUE(table.Restore(std::string(1000, 'a'), 7).has_value());
  EXPECT_EQ(table.bytes(), 1000u) << "what is restored counts, once";
  ASSERT_TRUE(table.Intern(std::string(1000, 'b'), limits).has_value());
  ASSERT_TRUE(table.Intern(std::string(1000, 'b'), limits).has_value()) << "known keys are still found";
  const Result<uint64_t> refused = table.Intern(std::string(49, 'c'), limits);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("2000 bytes, with this one 2049, at most 2048"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(table.Intern(std::string(48, 'c'), limits).has_value());
  EXPECT_EQ(table.bytes(), 2048u);
}

TEST(InternTable, AcceptsTheLongestKey) {
  InternTable table;
  const std::string key(proto::kKeyLengthMax, 'x');
  EXPECT_EQ(table.KeyOf(*table.Intern(key, Keys(1))), key);
}

TEST(InternTable, RestoresPairsAndRefusesContradictions) {
  InternTable table;
  EXPECT_TRUE(table.Restore("a", 7).has_value());
  EXPECT_TRUE(table.Restore("a", 7).has_value());
  EXPECT_EQ(table.Restore("b", 7).error().code, Code::kCorrupt);
  EXPECT_EQ(table.Restore("b", 0).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace tier::tiering
