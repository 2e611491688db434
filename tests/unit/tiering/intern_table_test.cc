#include "daemon/tiering/intern_table.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/message.h"

namespace tier::tiering {
namespace {

TEST(InternTable, TheSameKeyHasTheSameIdInEveryTable) {
  InternTable first;
  InternTable second;
  (void)second.Intern("something else", 10);  // The order of keys does not matter.
  EXPECT_EQ(*first.Intern("layer.0.weight", 10), *second.Intern("layer.0.weight", 10));
  EXPECT_EQ(*first.Intern("layer.0.weight", 10), *first.Intern("layer.0.weight", 10));
  EXPECT_EQ(first.size(), 1u);
}

TEST(InternTable, KeysThatDifferHaveIdsThatDiffer) {
  InternTable table;
  std::set<uint64_t> ids;
  for (int i = 0; i < 10'000; ++i) ids.insert(*table.Intern("optimizer.state." + std::to_string(i), 20'000));
  EXPECT_EQ(ids.size(), 10'000u);
  EXPECT_FALSE(ids.contains(0));
}

TEST(InternTable, KnowsTheKeyOfAnId) {
  InternTable table;
  const uint64_t id = *table.Intern("weights", 10);
  EXPECT_EQ(table.KeyOf(id), "weights");
  EXPECT_EQ(table.KeyOf(id + 1), "");
}

TEST(InternTable, RefusesMoreKeysThanItsMaximumWithFigures) {
  InternTable table;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Intern("key" + std::to_string(i), 3).has_value());
  const Result<uint64_t> refused = table.Intern("one too many", 3);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("3"), std::string::npos);
  EXPECT_TRUE(table.Intern("key1", 3).has_value()) << "known keys are still found";
}

TEST(InternTable, AcceptsTheLongestKey) {
  InternTable table;
  const std::string key(proto::kKeyLengthMax, 'x');
  EXPECT_EQ(table.KeyOf(*table.Intern(key, 1)), key);
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
