// What lies on a device: places that never overlap, and no byte of a superblock that nobody accounts for.
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <gtest/gtest.h>

#include "proto/disk.h"
#include "proto/extent_list_record.h"
#include "proto/units.h"

namespace tier::proto {
namespace {

TEST(Disk, SuperblockIsOnePlainPageWithoutPadding) {
  EXPECT_EQ(sizeof(Superblock), kPageSize);
  EXPECT_TRUE(std::is_trivially_copyable_v<Superblock>);
  EXPECT_TRUE(std::has_unique_object_representations_v<Superblock>);
}

TEST(Disk, ChecksumCoversEverythingBeforeIt) {
  EXPECT_EQ(offsetof(Superblock, crc), sizeof(Superblock) - sizeof(uint32_t));
}

TEST(Disk, CopiesAndDataDoNotOverlap) {
  EXPECT_GE(kSuperblockOffsets[1], kSuperblockOffsets[0] + kSuperblockSize);
  EXPECT_LE(kSuperblockOffsets[1] + kSuperblockSize, kLabelAreaSize);
  EXPECT_LE(kLabelAreaSize, kDiskDataOffset);
  EXPECT_EQ(kDiskDataOffset % kBlockSize, 0u);
  EXPECT_GT(kDiskSizeMin, kDiskDataOffset);
}

TEST(Disk, CopiesAreFurtherApartThanOneTornWrite) {
  // Devices tear within their largest atomic unit; 64 KiB is the largest in use.
  EXPECT_GE(kSuperblockOffsets[1] - kSuperblockOffsets[0], 64 * kKiB);
}

TEST(Disk, MagicSpellsItsName) {
  char text[9] = {};
  std::memcpy(text, &kDiskMagic, 8);
  EXPECT_STREQ(text, "TIERDISK");
}

TEST(ExtentList, IsPlainWithoutPaddingAndSpellsItsName) {
  EXPECT_TRUE(std::has_unique_object_representations_v<ExtentListHeader>);
  EXPECT_TRUE(std::has_unique_object_representations_v<ExtentListRun>);
  char text[9] = {};
  std::memcpy(text, &kExtentListMagic, 8);
  EXPECT_STREQ(text, "TIEREXTS");
}

// The format never changes: a list that another tierd wrote is read by these offsets.
TEST(ExtentList, ItsFieldsStayWhereTheyAre) {
  EXPECT_EQ(offsetof(ExtentListHeader, magic), 0u);
  EXPECT_EQ(offsetof(ExtentListHeader, run_count), 8u);
  EXPECT_EQ(offsetof(ExtentListHeader, crc), 16u);
  EXPECT_EQ(offsetof(ExtentListHeader, reserved), 20u);
  EXPECT_EQ(offsetof(ExtentListRun, first_page), 0u);
  EXPECT_EQ(offsetof(ExtentListRun, pages), 8u);
  EXPECT_EQ(offsetof(ExtentListRun, device), 12u);
  EXPECT_EQ(offsetof(ExtentListRun, reserved), 14u);
}

TEST(Units, PagesAndBlocksDivideEvenly) {
  EXPECT_EQ(kPagesPerBlock * kPageSize, kBlockSize);
  EXPECT_EQ(kWindowSizeMin % kBlockSize, 0u);
  EXPECT_EQ(kWindowSizeMax % kWindowSizeMin, 0u);
}

TEST(Units, RoundingUpNeverLoses) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kPageSize - 1, kPageSize, kPageSize + 1, 7 * kGiB + 3}) {
    const uint64_t aligned = AlignUp(bytes, kPageSize);
    EXPECT_GE(aligned, bytes);
    EXPECT_LT(aligned - bytes, kPageSize);
    EXPECT_EQ(aligned % kPageSize, 0u);
    EXPECT_EQ(PagesFor(bytes) * kPageSize, aligned);
  }
}

}  // namespace
}  // namespace tier::proto
