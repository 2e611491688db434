// The list of extents beside a manifest, as bytes and back.
#include "daemon/storage/extent_list.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/checksum.h"

namespace tier::storage {
namespace {

Extent Place(uint32_t block, uint16_t page, uint16_t pages, uint16_t device = 0) {
  return {.run = {.block = block, .page = page, .pages = pages}, .device = device};
}

TEST(ExtentList, JoinsNeighboursAndHasNothingThatWasDropped) {
  ExtentListWriter writer(8);
  writer.Add(Place(3, 0, 512));
  writer.Add(Place(4, 0, 512));
  writer.Mark();
  writer.Add(Place(5, 0, 512));
  writer.Add(Place(9, 7, 2, 1));
  writer.DropToMark();
  writer.Add(Place(5, 0, 4));
  writer.Add(Place(5, 0, 4, 1));
  const auto runs = DecodeExtentList(std::move(writer).Take());
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(runs->at(0).first_page, 3u * 512);
  EXPECT_EQ(runs->at(0).pages, 2u * 512 + 4);
  EXPECT_EQ(runs->at(1).device, 1u);
  std::vector<Extent> extents;
  ForEachExtent(runs->at(0), [&](Extent extent) { extents.push_back(extent); });
  EXPECT_THAT(extents, ::testing::ElementsAre(Place(3, 0, 512), Place(4, 0, 512), Place(5, 0, 4)));
}

TEST(ExtentList, EveryDamagedByteIsFound) {
  ExtentListWriter writer(2);
  writer.Add(Place(3, 0, 512));
  writer.Add(Place(7, 1, 5, 2));
  const std::vector<std::byte> whole = std::move(writer).Take();
  EXPECT_TRUE(DecodeExtentList(whole).has_value());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> bytes = whole;
    bytes[i] ^= std::byte{0x40};
    EXPECT_FALSE(DecodeExtentList(bytes).has_value()) << "byte " << i;
    EXPECT_FALSE(DecodeExtentList(std::span(whole).first(i)).has_value()) << i << " bytes";
  }
}

// Lists of every tierd before this one must be readable: these bytes were written by the first that had them.
TEST(ExtentList, ItsFormatStays) {
  ExtentListWriter writer(1);
  writer.Add(Place(2, 3, 4, 5));
  const std::vector<std::byte> bytes = std::move(writer).Take();
  const unsigned char head[] = {'T', 'I', 'E', 'R', 'E', 'X', 'T', 'S', 1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), head, sizeof(head)), 0);
  const unsigned char run[] = {3, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0};
  EXPECT_EQ(bytes.size(), 24 + sizeof(run));
  EXPECT_EQ(std::memcmp(bytes.data() + 24, run, sizeof(run)), 0);
  const uint32_t over_runs = Crc32c(std::as_bytes(std::span(run)));
  std::vector<std::byte> header(bytes.begin(), bytes.begin() + 24);
  std::fill_n(header.begin() + 16, 4, std::byte{0});
  uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + 16, sizeof(crc));
  EXPECT_EQ(crc, Crc32c(header, over_runs));
}

TEST(ExtentList, NamesDevicesByTheirStoredNumbers) {
  ExtentListWriter writer(2, DeviceNumbers(std::array<uint16_t, 2>{5, 0}));
  writer.Add(Place(3, 0, 512, 0));
  writer.Add(Place(4, 0, 512, 0));
  writer.Add(Place(4, 0, 512, 1));
  const auto runs = DecodeExtentList(std::move(writer).Take());
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(runs->at(0).device, 5u);
  EXPECT_EQ(runs->at(1).device, 0u);
}

}  // namespace
}  // namespace tier::storage
