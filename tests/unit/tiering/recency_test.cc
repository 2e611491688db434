#include "daemon/tiering/pieces/recency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tier::tiering {
namespace {

class RecencyTest : public ::testing::Test {
 protected:
  PieceId NewPiece() {
    const PieceId id = pieces.Allocate();
    pieces.Edit(id) = Piece{};
    return id;
  }
  PieceId Used(EvictionOrder order) {
    const PieceId id = NewPiece();
    policy.Use(id);
    policy.Add(id, order);
    return id;
  }
  std::vector<PieceId> ColdestFirst(EvictionOrder order) const {
    std::vector<PieceId> ids;
    for (PieceId at = policy.Coldest(order); at != kNoPiece; at = policy.Warmer(at)) ids.push_back(at);
    return ids;
  }

  PieceSlab pieces;
  RecencyPolicy policy{pieces};
};

TEST_F(RecencyTest, TheLongestUnusedComesFirst) {
  const PieceId a = Used(EvictionOrder::kClean);
  const PieceId b = Used(EvictionOrder::kClean);
  const PieceId c = Used(EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{a, b, c}));
  EXPECT_EQ(policy.count(EvictionOrder::kClean), 3u);
}

TEST_F(RecencyTest, UseMakesAPieceTheHottest) {
  const PieceId a = Used(EvictionOrder::kClean);
  const PieceId b = Used(EvictionOrder::kClean);
  policy.Use(a);
  policy.MoveToHot(a, EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{b, a}));
}

TEST_F(RecencyTest, WhatIsRetiredIsColderThanAllInTheOrderOfThat) {
  const PieceId a = Used(EvictionOrder::kClean);
  const PieceId b = Used(EvictionOrder::kClean);
  std::vector<PieceId> retired;
  for (int i = 0; i < 3; ++i) {
    retired.push_back(NewPiece());
    policy.Use(retired.back());
    policy.Retire(retired.back());
  }
  for (const PieceId id : {retired[1], retired[2], retired[0]}) policy.Add(id, EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{retired[0], retired[1], retired[2], a, b}));
  policy.Use(retired[0]);
  policy.MoveToHot(retired[0], EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{retired[1], retired[2], a, b, retired[0]}));
}

TEST_F(RecencyTest, OneThatIsUsedAgainIsRetiredNoLonger) {
  const PieceId again = NewPiece();
  policy.Retire(again);
  policy.Add(again, EvictionOrder::kClean);
  policy.Use(again);
  policy.MoveToHot(again, EvictionOrder::kClean);
  const PieceId retired = NewPiece();
  policy.Retire(retired);
  policy.Add(retired, EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{retired, again}));
}

// More than a search from either end passes.
TEST_F(RecencyTest, HoweverManyAreRetiredAllOfThemAreColderThanWhatWasUsed) {
  constexpr size_t kMany = 4 * RecencyPolicy::kSearchStepsMax;
  std::vector<PieceId> expected;
  std::vector<PieceId> used;
  for (size_t i = 0; i < kMany; ++i) {
    used.push_back(Used(EvictionOrder::kClean));
    expected.push_back(NewPiece());
    policy.Retire(expected.back());
    policy.Add(expected.back(), EvictionOrder::kClean);
  }
  const std::vector<PieceId> retired = expected;
  expected.insert(expected.end(), used.begin(), used.end());
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), expected);
  for (const PieceId id : {retired.back(), retired[kMany / 2], retired.front()}) {
    policy.Use(id);
    policy.MoveToHot(id, EvictionOrder::kClean);
    expected.erase(std::find(expected.begin(), expected.end(), id));
    expected.push_back(id);
  }
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), expected);
  const PieceId written = NewPiece();  // Used first, and clean last.
  pieces.Edit(written).used_at = pieces[used.front()].used_at - 1;
  policy.Add(written, EvictionOrder::kClean);
  const auto coldest_used = std::find(expected.begin(), expected.end(), used.front());
  expected.insert(coldest_used, written);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), expected);
  for (const PieceId id : retired) {
    if (!pieces[id].retired) continue;
    policy.Remove(id, EvictionOrder::kClean);
    expected.erase(expected.begin());
  }
  const PieceId last = NewPiece();
  policy.Retire(last);
  policy.Add(last, EvictionOrder::kClean);
  expected.insert(expected.begin(), last);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), expected);
}

TEST_F(RecencyTest, TheTwoOrdersAreApart) {
  const PieceId clean = Used(EvictionOrder::kClean);
  const PieceId dirty = Used(EvictionOrder::kDirty);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{clean}));
  EXPECT_EQ(ColdestFirst(EvictionOrder::kDirty), (std::vector{dirty}));
}

TEST_F(RecencyTest, APieceThatWasWrittenOutKeepsItsPlaceInTime) {
  const PieceId old_dirty = Used(EvictionOrder::kDirty);
  const PieceId clean_a = Used(EvictionOrder::kClean);
  const PieceId newer_dirty = Used(EvictionOrder::kDirty);
  const PieceId clean_b = Used(EvictionOrder::kClean);
  for (const PieceId id : {newer_dirty, old_dirty}) {
    policy.Remove(id, EvictionOrder::kDirty);
    policy.Add(id, EvictionOrder::kClean);
  }
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{old_dirty, clean_a, newer_dirty, clean_b}));
}

TEST_F(RecencyTest, AddingIntoTheMiddleOfALongOrderTakesABoundedSearch) {
  std::vector<PieceId> early;
  for (int i = 0; i < 200; ++i) early.push_back(Used(EvictionOrder::kClean));
  const PieceId middle = Used(EvictionOrder::kDirty);
  for (int i = 0; i < 200; ++i) Used(EvictionOrder::kClean);
  policy.Remove(middle, EvictionOrder::kDirty);
  policy.Add(middle, EvictionOrder::kClean);
  EXPECT_EQ(policy.count(EvictionOrder::kClean), 401u);
  const std::vector<PieceId> order = ColdestFirst(EvictionOrder::kClean);
  const auto at = std::find(order.begin(), order.end(), middle) - order.begin();
  EXPECT_EQ(at, RecencyPolicy::kSearchStepsMax) << "near the cold end, where the search gave up";
  EXPECT_EQ(order.front(), early.front());
}

TEST_F(RecencyTest, RemovingFromTheEndsAndTheMiddleKeepsTheRestInOrder) {
  std::vector<PieceId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Used(EvictionOrder::kDirty));
  for (const size_t gone : {size_t{0}, size_t{4}, size_t{2}}) policy.Remove(ids[gone], EvictionOrder::kDirty);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kDirty), (std::vector{ids[1], ids[3]}));
  policy.Remove(ids[1], EvictionOrder::kDirty);
  policy.Remove(ids[3], EvictionOrder::kDirty);
  EXPECT_EQ(policy.Coldest(EvictionOrder::kDirty), kNoPiece);
}

TEST_F(RecencyTest, StampsMayWrapAround) {
  const PieceId a = NewPiece();
  const PieceId b = NewPiece();
  pieces.Edit(a).used_at = UINT32_MAX - 1;
  pieces.Edit(b).used_at = 3;
  policy.Add(b, EvictionOrder::kClean);
  policy.Add(a, EvictionOrder::kClean);
  EXPECT_EQ(ColdestFirst(EvictionOrder::kClean), (std::vector{a, b}));
}

TEST_F(RecencyTest, AddingTwiceIsABug) {
  const PieceId a = Used(EvictionOrder::kClean);
  EXPECT_DEATH(policy.Add(a, EvictionOrder::kClean), "listed");
}

}  // namespace
}  // namespace tier::tiering
