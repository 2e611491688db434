#include "daemon/tiering/tables/slab.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "daemon/tiering/tables/drain_state.h"

namespace tier::tiering {
namespace {

enum class RecordId : uint32_t {};
constexpr uint32_t Value(RecordId id) { return static_cast<uint32_t>(id); }

struct Record {
  uint64_t value = 7;
  uint32_t salt = 0;
};
constexpr uint32_t kChunk = 64;

class SlabTest : public ::testing::Test {
 protected:
  // Uses `count` more records, and returns their ids.
  std::vector<RecordId> Allocate(uint32_t count) {
    std::vector<RecordId> ids;
    for (uint32_t i = 0; i < count; ++i) ids.push_back(slab.Allocate());
    return ids;
  }
  uint32_t ShrinkAll() {
    uint32_t chunks = 0;
    while (slab.ShrinkOne()) ++chunks;
    return chunks;
  }
  void TearDown() override { slab.CheckInvariants(); }

  Slab<Record, RecordId, kChunk> slab;
};

TEST_F(SlabTest, TheLowestFreeIdIsGivenOutFirst) {
  Allocate(3 * kChunk);
  for (const uint32_t id : {150u, 3u, 70u, 4u}) slab.Free(RecordId{id});
  for (const uint32_t id : {3u, 4u, 70u, 150u, 192u}) EXPECT_EQ(Value(slab.Allocate()), id);
}

TEST_F(SlabTest, EmptyChunksGoBackToTheSystemAndOneIsKept) {
  const std::vector<RecordId> ids = Allocate(10 * kChunk);
  const uint64_t full = slab.bytes();
  EXPECT_FALSE(slab.ShrinkOne());
  for (const RecordId id : ids) slab.Free(id);
  EXPECT_EQ(slab.bytes(), full) << "not before it is asked to";
  EXPECT_EQ(ShrinkAll(), 9u);
  EXPECT_LT(slab.bytes(), full / 5);
  EXPECT_EQ(slab.capacity(), 10 * kChunk) << "ids are not taken back";
  EXPECT_EQ(Value(slab.Allocate()), 0u);
}

TEST_F(SlabTest, AChunkWithOneUsedRecordStays) {
  const std::vector<RecordId> ids = Allocate(4 * kChunk);
  for (const RecordId id : ids) {
    if (Value(id) != 2 * kChunk) slab.Free(id);
  }
  slab.Edit(RecordId{2 * kChunk}).value = 42;
  EXPECT_EQ(ShrinkAll(), 2u);
  EXPECT_EQ(slab[RecordId{2 * kChunk}].value, 42u);
}

TEST_F(SlabTest, VisitsWhatIsInUseInOrderAndWhatIsFreeInMemory) {
  const std::vector<RecordId> ids = Allocate(4 * kChunk);
  const std::set<uint32_t> kept = {0, 63, 64, 100, 3 * kChunk + 5};
  for (const RecordId id : ids) {
    if (!kept.contains(Value(id))) slab.Free(id);
  }
  slab.Edit(RecordId{100}).value = 42;
  ASSERT_EQ(ShrinkAll(), 0u) << "one empty chunk is kept";
  std::vector<uint32_t> used;
  slab.ForEachUsed([&](RecordId id, const Record& record) {
    used.push_back(Value(id));
    EXPECT_EQ(record.value, Value(id) == 100 ? 42u : 7u);
  });
  EXPECT_EQ(used, std::vector<uint32_t>(kept.begin(), kept.end()));
  std::set<uint32_t> free;
  slab.ForEachFree([&](RecordId id, const Record&) { free.insert(Value(id)); });
  EXPECT_EQ(free.size(), 4 * kChunk - kept.size());
  for (const uint32_t id : kept) EXPECT_FALSE(free.contains(id)) << id;
}

TEST_F(SlabTest, OfChunksThatWentNothingIsVisited) {
  for (const RecordId id : Allocate(5 * kChunk)) slab.Free(id);
  ASSERT_EQ(ShrinkAll(), 4u);
  uint32_t free = 0;
  slab.ForEachFree([&](RecordId, const Record&) { ++free; });
  EXPECT_EQ(free, kChunk);
  slab.ForEachUsed([](RecordId id, const Record&) { ADD_FAILURE() << Value(id) << " is not in use"; });
}

TEST_F(SlabTest, AChunkThatWentIsMadeAgain) {
  for (const RecordId id : Allocate(3 * kChunk)) slab.Free(id);
  ShrinkAll();
  std::vector<RecordId> again = Allocate(3 * kChunk);
  for (uint32_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(Value(again[i]), i);
    slab.Edit(again[i]).value = i;
  }
  EXPECT_EQ(slab.capacity(), 3 * kChunk);
}

TEST_F(SlabTest, AnIdOfAChunkThatWentReadsAsANewRecord) {
  for (const RecordId id : Allocate(2 * kChunk)) {
    slab.Edit(id).value = 1;
    slab.Free(id);
  }
  EXPECT_EQ(slab[RecordId{kChunk}].value, 1u) << "a freed record keeps its bytes";
  ShrinkAll();
  EXPECT_EQ(slab[RecordId{kChunk}].value, 7u);
  EXPECT_EQ(slab[RecordId{kChunk}].salt, 0u) << "which no record in use has";
}

TEST_F(SlabTest, ASaltDoesNotComeAgainWithItsId) {
  const std::vector<RecordId> ids = Allocate(2 * kChunk);
  EXPECT_EQ(slab[RecordId{kChunk}].salt, 1u);
  for (const RecordId id : ids) {
    if (Value(id) == kChunk + 5) slab.Edit(id).salt = 9;
    slab.Free(id);
  }
  ShrinkAll();
  Allocate(2 * kChunk);
  for (uint32_t i = 0; i < kChunk; ++i) EXPECT_EQ(slab[RecordId{kChunk + i}].salt, 9u);
  EXPECT_EQ(slab[RecordId{0}].salt, 1u);
}

TEST_F(SlabTest, WhatIsHeldIsFoundAndChunksThatWentAreSkipped) {
  EXPECT_EQ(slab.NextHeld(0), 0u) << "there is nothing";
  constexpr uint32_t kChunks = 5000;  // The set of them has more than one summary.
  const std::vector<RecordId> ids = Allocate(kChunks * kChunk);
  EXPECT_EQ(slab.held(), slab.capacity());
  const std::set<uint32_t> stays = {3, 70, 4999};
  for (const RecordId id : ids) {
    if (!stays.contains(Value(id) / kChunk)) slab.Free(id);
  }
  ShrinkAll();
  EXPECT_EQ(slab.capacity(), kChunks * kChunk);
  EXPECT_EQ(slab.held(), 4 * kChunk);
  std::set<uint32_t> chunks;
  uint32_t seen = 0;
  for (uint32_t id = slab.NextHeld(0); id != slab.capacity(); id = slab.NextHeld(id + 1), ++seen) {
    chunks.insert(id / kChunk);
  }
  EXPECT_EQ(seen, slab.held());
  EXPECT_EQ(chunks, (std::set<uint32_t>{0, 3, 70, 4999})) << "one empty chunk is kept";
  EXPECT_EQ(slab.NextHeld(slab.capacity()), slab.capacity());
}

// Of a daemon that once had many pieces more.
TEST(PiecePass, VisitsOnlyPiecesThatAreHeld) {
  PieceSlab pieces;
  std::vector<PieceId> ids;
  for (uint32_t i = 0; i < 8 * PieceSlab::kChunk; ++i) ids.push_back(pieces.Allocate());
  for (uint32_t i = 0; i < 7 * PieceSlab::kChunk; ++i) pieces.Free(ids[i]);
  while (pieces.ShrinkOne()) {
  }
  PiecePass over;
  for (int pass = 0; pass < 2; ++pass, over.Begin()) {
    std::set<uint32_t> seen;
    uint32_t visits = 0;
    for (; !over.IsOver(pieces); ++visits) seen.insert(Value(over.Next(pieces)));
    EXPECT_EQ(visits, 2 * PieceSlab::kChunk);
    EXPECT_EQ(seen.size(), visits) << "each of them once";
    EXPECT_TRUE(seen.contains(Value(ids.back())));
  }
}

TEST_F(SlabTest, FreeingAnIdTwiceIsABug) {
  const RecordId id = slab.Allocate();
  slab.Free(id);
  EXPECT_DEATH(slab.Free(id), "not in use");
  EXPECT_DEATH(slab.Free(RecordId{9 * kChunk}), "not in use");
}

}  // namespace
}  // namespace tier::tiering
