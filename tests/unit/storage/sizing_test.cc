// The rule for the default SSD file, as figures in and figures out.
#include "daemon/storage/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/file_system.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Sizing, TakesAQuarterOfTheFreeSpace) {
  const auto size = PlanFileSize({.total = 200 * kGiB, .available = 100 * kGiB}, 0, "/d");
  ASSERT_TRUE(size) << size.error().message;
  EXPECT_EQ(*size, 25 * kGiB);
}

TEST(Sizing, TakesNoMoreThan64GiB) {
  const auto size = PlanFileSize({.total = 4096 * kGiB, .available = 4000 * kGiB}, 0, "/d");
  ASSERT_TRUE(size);
  EXPECT_EQ(*size, 64 * kGiB);
}

TEST(Sizing, RefusesWhenTenGiBWouldNotStayFree) {
  // A quarter of 13 GiB leaves 9.75 GiB.
  const auto size = PlanFileSize({.total = 20 * kGiB, .available = 13 * kGiB}, 0, "/d");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, Code::kNoSpace);
  EXPECT_THAT(size.error().message, HasSubstr("13 GiB of 20 GiB"));
  EXPECT_THAT(size.error().message, HasSubstr("leave 10 GiB free"));
  EXPECT_THAT(size.error().message, HasSubstr("ssd.file_size, daemon.data_directory or ssd.devices"));
  EXPECT_THAT(size.error().message, HasSubstr("/d"));
}

TEST(Sizing, AcceptsTheLeastThatLeavesTenGiB) {
  EXPECT_TRUE(PlanFileSize({.total = 20 * kGiB, .available = 14 * kGiB}, 0, "/d"));
}

TEST(Sizing, RefusesWhenATenthOfTheFileSystemWouldNotStayFree) {
  // 120 GiB free of 1,000: a quarter leaves 90, a tenth is 100.
  const auto size = PlanFileSize({.total = 1000 * kGiB, .available = 120 * kGiB}, 0, "/d");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, Code::kNoSpace);
  EXPECT_TRUE(PlanFileSize({.total = 1000 * kGiB, .available = 140 * kGiB}, 0, "/d"));
}

TEST(Sizing, RefusesAFullFileSystemWithoutUnderflow) {
  const auto size = PlanFileSize({.total = kGiB, .available = 0}, 0, "/d");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, Code::kNoSpace);
}

TEST(Sizing, IsAlwaysWholeBlocks) {
  for (uint64_t available = 40 * kGiB; available < 41 * kGiB; available += 123'456'789) {
    const auto size = PlanFileSize({.total = 100 * kGiB, .available = available}, 0, "/d");
    ASSERT_TRUE(size);
    EXPECT_EQ(*size % kBlockSize, 0u);
  }
}

TEST(Sizing, LetsAConfiguredSizeBreakTheDefaultRuleButNotTheDisk) {
  const FileSystemSpace space{.total = 20 * kGiB, .available = 5 * kGiB};
  const auto fits = PlanFileSize(space, 4 * kGiB + 5, "/d");
  ASSERT_TRUE(fits);
  EXPECT_EQ(*fits, 4 * kGiB);
  const auto too_large = PlanFileSize(space, 6 * kGiB, "/d");
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, Code::kNoSpace);
  EXPECT_THAT(too_large.error().message, AllOf(HasSubstr("6 GiB"), HasSubstr("lower ssd.file_size")));
}

TEST(Sizing, RefusesAUselesslySmallSize) {
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

}  // namespace
}  // namespace tier::storage
