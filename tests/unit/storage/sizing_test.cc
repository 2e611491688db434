// The rule for the default SSD file, as figures in and figures out.
#include "daemon/storage/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/file_system.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DefaultFile Plan(uint64_t total, uint64_t available) {
  return PlanDefaultFile({.total = total, .available = available}, "/d");
}

TEST(DefaultFile, TakesAQuarterOfTheFreeSpace) {
  const DefaultFile file = Plan(200 * kGiB, 100 * kGiB);
  EXPECT_EQ(file.size, 25 * kGiB);
  EXPECT_EQ(file.shortage, "");
}

TEST(DefaultFile, TakesNoMoreThan64GiB) {
  const DefaultFile file = Plan(4096 * kGiB, 4000 * kGiB);
  EXPECT_EQ(file.size, 64 * kGiB);
  EXPECT_EQ(file.shortage, "");
}

TEST(DefaultFile, IsCutDownToWhatLeavesTenGiBFree) {
  // A quarter of 13 GiB would leave 9.75 GiB.
  const DefaultFile file = Plan(20 * kGiB, 13 * kGiB);
  EXPECT_EQ(file.size, 3 * kGiB);
  EXPECT_EQ(file.shortage, "13 GiB of 20 GiB are free in /d, of which 10 GiB must stay free");
  EXPECT_EQ(Plan(20 * kGiB, 14 * kGiB).shortage, "") << "a quarter of 14 GiB leaves 10.5 GiB";
}

TEST(DefaultFile, IsCutDownToWhatLeavesATenthOfTheFileSystemFree) {
  // A quarter of 120 GiB would leave 90 GiB.
  const DefaultFile file = Plan(1000 * kGiB, 120 * kGiB);
  EXPECT_EQ(file.size, 20 * kGiB);
  EXPECT_NE(file.shortage, "");
  EXPECT_EQ(Plan(1000 * kGiB, 140 * kGiB).size, 35 * kGiB);
}

TEST(DefaultFile, IsNotMadeBelowOneGiB) {
  EXPECT_EQ(Plan(20 * kGiB, 11 * kGiB).size, kGiB);
  for (const uint64_t available : {11 * kGiB - 1, 10 * kGiB, kGiB, uint64_t{0}}) {
    EXPECT_EQ(Plan(20 * kGiB, available).size, 0u) << available;
    EXPECT_NE(Plan(20 * kGiB, available).shortage, "") << available;
  }
}

TEST(DefaultFile, IsAlwaysWholeBlocksAndLeavesWhatItMust) {
  for (uint64_t available = 9 * kGiB; available < 60 * kGiB; available += 123'456'789) {
    const DefaultFile file = Plan(100 * kGiB, available);
    EXPECT_EQ(file.size % kBlockSize, 0u);
    if (file.size != 0) {
      EXPECT_GE(file.size, kGiB);
      EXPECT_GE(available - file.size, 10 * kGiB);
    }
  }
}

TEST(FileSize, LetsAConfiguredSizeBreakTheDefaultRuleButNotTheDisk) {
  const FileSystemSpace space{.total = 20 * kGiB, .available = 5 * kGiB};
  const auto fits = PlanFileSize(space, 4 * kGiB + 5, "/d");
  ASSERT_TRUE(fits);
  EXPECT_EQ(*fits, 4 * kGiB);
  const auto too_large = PlanFileSize(space, 6 * kGiB, "/d");
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, Code::kNoSpace);
  EXPECT_THAT(too_large.error().message, AllOf(HasSubstr("6 GiB"), HasSubstr("lower ssd.file_size")));
}

TEST(FileSize, RefusesAUselesslySmallSize) {
  const auto size = PlanFileSize({.total = 20 * kGiB, .available = 5 * kGiB}, kMiB, "/d");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, Code::kInvalid);
  EXPECT_THAT(size.error().message, HasSubstr("set ssd.file_size"));
}

TEST(FileSystem, RefusesWhatIsNotALocalDisk) {
  for (const uint64_t type : {0x01021994u, 0x794c7630u, 0x6969u, 0x01021997u, 0x65735546u, 0xff534d42u}) {
    EXPECT_TRUE(ReasonAgainstFileSystem(type)) << std::hex << type;
  }
}

TEST(FileSystem, AcceptsExt4XfsAndBtrfs) {
  for (const uint64_t type : {0xef53u, 0x58465342u, 0x9123683eu}) {
    EXPECT_FALSE(ReasonAgainstFileSystem(type)) << std::hex << type;
  }
}

TEST(FileSystem, NamesTmpfsAndThePathWhenAskedAboutAPath) {
  if (SpaceOf("/dev/shm") && CheckFileSystem("/dev/shm")) GTEST_SKIP() << "needs tmpfs: /dev/shm is something else";
  const Status status = CheckFileSystem("/dev/shm");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_THAT(status.error().message, HasSubstr("/dev/shm"));
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("tmpfs"), HasSubstr("daemon.data_directory")));
}

TEST(FileSystem, MakesNoFileAmongTheDevices) {
  for (const char* path : {"/dev/nosuch", "/dev/mapper/nosuch"}) {
    const Status status = CheckNewFile(path);
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().code, Code::kNotFound);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr(std::string(path) + " does not exist"), HasSubstr("ssd.devices")));
  }
  for (const char* path : {"/srv/tier.ssd", "/dev/shm/x", "/device/x"}) EXPECT_TRUE(CheckNewFile(path)) << path;
}

TEST(FileSystem, AnswersNotFoundForAPathThatIsNotThere) {
  EXPECT_EQ(CheckFileSystem("/no/such/place").error().code, Code::kNotFound);
  EXPECT_EQ(SpaceOf("/no/such/place").error().code, Code::kNotFound);
}

TEST(FileGrowth, IsInWholeBlocksAndNeverToLess) {
  EXPECT_EQ(GrownSize(kGiB, 0), kGiB);
  EXPECT_EQ(GrownSize(kGiB, kGiB - 1), kGiB);
  EXPECT_EQ(GrownSize(kGiB, kGiB + kBlockSize - 1), kGiB);
  EXPECT_EQ(GrownSize(kGiB, kGiB + kBlockSize + 1), kGiB + kBlockSize);
  EXPECT_EQ(GrownSize(kGiB + 5, kGiB + 5), kGiB + 5) << "a file that was formatted as it stood";
}

TEST(FileGrowth, NeedsRoomForWhatIsMore) {
  EXPECT_TRUE(CheckGrowth({.total = 20 * kGiB, .available = kGiB}, kGiB, "/d"));
  const Status refused = CheckGrowth({.total = 20 * kGiB, .available = kGiB - 1}, kGiB, "/d");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("1 GiB more do not fit into /d"), HasSubstr("of 20 GiB")));
}

TEST(FileGrowth, LeavesRoomForTheIndex) {
  const FileSystemSpace space{.total = 20 * kGiB, .available = kGiB + 8 * kMiB};
  EXPECT_TRUE(CheckGrowth(space, kGiB, "/d", 8 * kMiB));
  EXPECT_THAT(CheckGrowth(space, kGiB, "/d", 9 * kMiB).error().message, HasSubstr("9 MiB stay free for the index"));
  EXPECT_TRUE(CheckGrowth({.total = kGiB, .available = 0}, 0, "/d", 9 * kMiB)) << "the file has the bytes already";
}

TEST(FileGrowth, IsForetold) {
  EXPECT_EQ(NextSizeNote("/d/f", kGiB, 0), "");
  EXPECT_EQ(NextSizeNote("/d/f", kGiB, kGiB), "");
  EXPECT_EQ(GrowthNote("/d/f", kGiB, 3 * kGiB), "/d/f grows from 1 GiB to 3 GiB at the next start");
  EXPECT_EQ(NextSizeNote("/d/f", kGiB, 3 * kGiB),
            GrowthNote("/d/f", kGiB, 3 * kGiB) + ", where its file system has the room");
  EXPECT_THAT(NextSizeNote("/d/f", kGiB, kGiB - 1), HasSubstr("/d/f keeps its 1 GiB, for a file does not shrink"));
}

}  // namespace
}  // namespace tier::storage
