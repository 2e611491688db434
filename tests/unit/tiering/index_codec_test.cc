// Reading an index that an earlier daemon left: right ones whole, others not at all and with a reason.
#include "daemon/tiering/tables/index_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiering/index_records.h"

namespace tier::tiering::testing {
namespace {

using proto::IndexPieceRecord;
using proto::IndexTensorRecord;
using storage::testing::FakeIndex;
using storage::testing::IndexContents;
using ::testing::HasSubstr;

constexpr storage::TensorKey kKey{1, 2, 3};
constexpr uint32_t kChunk = proto::kIndexChunkPieces;

storage::RecordKey Record(uint32_t record) { return {kKey.job, kKey.space, kKey.tensor, record}; }

Result<std::vector<IndexedTensor>> Read(const IndexContents& records) {
  return ReadIndex(FakeIndex(std::make_shared<IndexContents>(records)));
}

std::string Refusal(const IndexContents& records) {
  const auto read = Read(records);
  if (read) return "it was read";
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_THAT(read.error().message, HasSubstr("job 1"));
  return read.error().message;
}

// Changes the head, or piece k of that record, in place.
template <typename Layout, typename Change>
IndexContents Changed(uint32_t piece_count, uint32_t record, uint32_t at, Change change) {
  IndexContents records = RecordsOfTensor(kKey, piece_count);
  std::byte* bytes = records.at(Record(record)).data() + at;
  Layout layout;
  std::memcpy(&layout, bytes, sizeof(layout));
  change(layout);
  std::memcpy(bytes, &layout, sizeof(layout));
  return records;
}

TEST(IndexCodec, ATensorOfOneChunkIsOneRecord) {
  EXPECT_EQ(RecordsOfTensor(kKey, kChunk).size(), 1u);
  EXPECT_EQ(RecordsOfTensor(kKey, kChunk + 1).size(), 3u);
  EXPECT_EQ(IndexChunksOf(1), 0u);
  EXPECT_EQ(IndexChunksOf(10'000), 10'000 / kChunk);
}

TEST(IndexCodec, ReadsTensorsOfEverySizeInTheOrderOfTheirKeys) {
  IndexContents records;
  for (const uint32_t pieces : {1u, 2u, kChunk, kChunk + 1, 2 * kChunk, 100u}) {
    records.merge(RecordsOfTensor({1, 0, pieces}, pieces));
  }
  const auto read = Read(records);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 6u);
  for (const IndexedTensor& tensor : *read) {
    EXPECT_EQ(tensor.key.tensor, tensor.head.piece_count);
    ASSERT_EQ(tensor.pieces.size(), tensor.head.piece_count);
    for (uint32_t k = 0; k < tensor.pieces.size(); ++k) EXPECT_EQ(tensor.pieces[k].ssd_block, k);
  }
}

TEST(IndexCodec, ReadsAnEmptyIndex) { EXPECT_TRUE(Read({})->empty()); }

TEST(IndexCodec, RefusesAMissingRecord) {
  for (const uint32_t record : {0u, 1u, 2u, 3u}) {
    IndexContents records = RecordsOfTensor(kKey, 3 * kChunk);
    records.erase(Record(record));
    EXPECT_THAT(Refusal(records),
                HasSubstr(record == 0 ? "pieces without a head" : (record == 3 ? "32 pieces of 48" : "record")));
  }
}

TEST(IndexCodec, RefusesALastTensorCutShortBeforeAnother) {
  IndexContents records = RecordsOfTensor(kKey, 2 * kChunk);
  records.erase(Record(2));
  records.merge(RecordsOfTensor({1, 2, 4}, 1));
  EXPECT_THAT(Refusal(records), HasSubstr("16 pieces of 32"));
}

TEST(IndexCodec, RefusesOneRecordTooMany) {
  IndexContents records = RecordsOfTensor(kKey, 2 * kChunk);
  records[Record(3)] = records.at(Record(2));
  EXPECT_THAT(Refusal(records), HasSubstr("record 3 after 32 of 32 pieces"));
  records = RecordsOfTensor(kKey, 1);
  records[Record(1)] = {};
  EXPECT_THAT(Refusal(records), HasSubstr("record 1 after 1 of 1 pieces"));
}

TEST(IndexCodec, RefusesARecordOfAWrongSize) {
  IndexContents records = RecordsOfTensor(kKey, kChunk + 2);
  records.at(Record(2)).pop_back();
  EXPECT_THAT(Refusal(records), HasSubstr("63 bytes for 2 pieces"));
  records = RecordsOfTensor(kKey, 1);
  records.at(Record(0)).resize(20);
  EXPECT_THAT(Refusal(records), HasSubstr("a head of 20 bytes"));
}

TEST(IndexCodec, RefusesAHeadThatCannotBe) {
  const auto head = [](auto change) { return Refusal(Changed<IndexTensorRecord>(1, 0, 0, change)); };
  EXPECT_THAT(head([](auto& is) { is.size = 0; }), HasSubstr("a head of"));
  EXPECT_THAT(head([](auto& is) { is.size += 1; }), HasSubstr("a head of"));
  EXPECT_THAT(head([](auto& is) { is.piece_count = 2; }), HasSubstr("a head of"));
  EXPECT_THAT(head([](auto& is) { is.flags |= 4; }), HasSubstr("a head of"));
  EXPECT_THAT(head([](auto& is) { is.session = 9; }), HasSubstr("session 9"));
  EXPECT_THAT(head([](auto& is) { is.flags = 0; }), HasSubstr("session 0"));
  EXPECT_THAT(head([](auto& is) { is.flags |= proto::kIndexTensorTorn; }), HasSubstr("torn without a torn piece"));
}

TEST(IndexCodec, RefusesAPieceThatCannotBe) {
  const auto piece = [](auto change) {
    return Refusal(Changed<IndexPieceRecord>(kChunk + 2, 2, sizeof(IndexPieceRecord), change));
  };
  EXPECT_THAT(piece([](auto& is) { is.copies = 5; }), HasSubstr("piece 17: copies 5"));
  EXPECT_THAT(piece([](auto& is) { is.copies = 0; }), HasSubstr("piece 17")) << "being created in a sealed tensor";
  EXPECT_THAT(piece([](auto& is) { is.copies = 1; }), HasSubstr("piece 17")) << "in RAM, where it has no place";
  EXPECT_THAT(piece([](auto& is) { is.ram_pages = 512; }), HasSubstr("512 pages in RAM")) << "though only on SSD";
  EXPECT_THAT(piece([](auto& is) { is.ssd_pages = 511; }), HasSubstr("511 on SSD"));
  EXPECT_THAT(piece([](auto& is) { is.ssd_page = 1; }), HasSubstr("piece 17")) << "beyond its block";
  EXPECT_THAT(piece([](auto& is) { is.ssd_device = 64; }), HasSubstr("piece 17"));
  EXPECT_THAT(piece([](auto& is) { is.flags = 8; }), HasSubstr("flags 0x8"));
  EXPECT_THAT(piece([](auto& is) { is.flags = proto::kIndexPieceDirty; }), HasSubstr("piece 17")) << "written nowhere";
  EXPECT_THAT(piece([](auto& is) { is.generation = 8; }), HasSubstr("generation 8 of 7")) << "of a later turn";
  EXPECT_THAT(piece([](auto& is) { is.ssd_generation = 4; }), HasSubstr("piece 17"));
  EXPECT_THAT(piece([](auto& is) { is.flags = proto::kIndexPieceMixed; }), HasSubstr("a tensor that is not"));
}

}  // namespace
}  // namespace tier::tiering::testing
