#include "daemon/tiering/tables/window_set.h"

#include <gtest/gtest.h>

#include <vector>

namespace tier::tiering {
namespace {

WindowSet SetOf(const std::vector<uint32_t>& indices) {
  WindowSet set;
  for (const uint32_t index : indices) set.Add(WindowIndex{index});
  return set;
}

std::vector<uint32_t> ListOf(const WindowSet& set) {
  std::vector<uint32_t> indices;
  set.ForEach([&](WindowIndex window) { indices.push_back(Value(window)); });
  return indices;
}

using Indices = std::vector<uint32_t>;

TEST(WindowSet, IsEmptyAtFirst) {
  const WindowSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_FALSE(set.Contains(WindowIndex{0}));
  EXPECT_FALSE(set.Contains(WindowIndex{7999}));
  EXPECT_EQ(ListOf(set), Indices{});
}

TEST(WindowSet, ContainsWhatWasAddedAndNoNeighbour) {
  const WindowSet set = SetOf({0, 63, 64, 200});
  for (uint32_t index = 0; index < 400; ++index) {
    const bool added = index == 0 || index == 63 || index == 64 || index == 200;
    EXPECT_EQ(set.Contains(WindowIndex{index}), added) << index;
  }
  EXPECT_FALSE(set.empty());
}

TEST(WindowSet, ListsItsWindowsInOrder) { EXPECT_EQ(ListOf(SetOf({200, 5, 64, 63, 5})), (Indices{5, 63, 64, 200})); }

TEST(WindowSet, ContainsNoLongerWhatWasRemoved) {
  WindowSet set = SetOf({3, 64, 65});
  set.Remove(WindowIndex{64});
  set.Remove(WindowIndex{4});
  set.Remove(WindowIndex{100'000});
  EXPECT_EQ(ListOf(set), (Indices{3, 65}));
  set.Remove(WindowIndex{3});
  set.Remove(WindowIndex{65});
  EXPECT_TRUE(set.empty());
  set.Add(WindowIndex{64});
  EXPECT_EQ(ListOf(set), Indices{64});
}

TEST(WindowSet, AUnionContainsTheWindowsOfBothWhicheverIsLonger) {
  WindowSet set = SetOf({1, 2});
  set.AddAll(SetOf({2, 300}));
  EXPECT_EQ(ListOf(set), (Indices{1, 2, 300}));
  set.AddAll(SetOf({0}));
  set.AddAll(WindowSet());
  EXPECT_EQ(ListOf(set), (Indices{0, 1, 2, 300}));
}

TEST(WindowSet, WindowsMayBeRemovedWhileTheyAreVisited) {
  WindowSet set = SetOf({0, 1, 70, 71, 190});
  Indices visited;
  set.ForEach([&](WindowIndex window) {
    visited.push_back(Value(window));
    if (Value(window) % 2 == 0) set.Remove(window);
  });
  EXPECT_EQ(visited, (Indices{0, 1, 70, 71, 190}));
  EXPECT_EQ(ListOf(set), (Indices{1, 71}));
}

TEST(WindowSet, IsEmptyOnceItIsCleared) {
  WindowSet set = SetOf({0, 500});
  set.Clear();
  EXPECT_TRUE(set.empty());
  EXPECT_FALSE(set.Contains(WindowIndex{500}));
}

}  // namespace
}  // namespace tier::tiering
