// What a start makes of ssd.file_size where the files are there: larger ones grow, all serve, and nothing is lost.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/device_file.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/known_devices.h"
#include "tests/unit/storage/lost_device_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FileSize : public LostDeviceTest {
 protected:
  static constexpr uint64_t kLarger = 2 * kSize;
  SsdTierOptions PairOf(uint64_t size) {
    SsdTierOptions options = Pair();
    for (SsdDeviceOptions& device : options.devices) device.size = size;
    return options;
  }
  uint64_t SizeAt(const std::string& path) { return DeviceFile::ReadSuperblock(path)->device_size; }
};

TEST_F(FileSize, ALargerOneGrowsTheFilesAtTheNextStartAndLosesNothing) {
  const std::string uuid = FirstStart(Persisted::kThere);
  {
    const auto tier = Open(PairOf(kLarger));
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->ssd_mode(), SsdMode::kFull) << tier->ssd_mode_reason();
    EXPECT_EQ(tier->device(1).uuid, uuid);
    for (uint16_t device = 0; device < 2; ++device) {
      EXPECT_EQ(tier->device(device).size, kLarger);
      EXPECT_EQ(tier->device(device).grown_from, kSize);
      EXPECT_EQ(tier->extents().space(device).capacity, kLarger - proto::kDiskDataOffset);
      EXPECT_EQ(tier->device(device).size_note, "");
    }
    EXPECT_THAT(ListOf(*tier, "1000/whole"), SizeIs(1));
    EXPECT_THAT(ListOf(*tier, "1000/lost"), SizeIs(1));
  }
  const auto again = Open(PairOf(kLarger));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->device(0).grown_from, 0u);
  EXPECT_EQ(again->device(0).size, kLarger);
}

TEST_F(FileSize, WithoutTheRoomTheTierServesWithWhatItHasAndSaysWhy) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = PairOf(kLarger);
  options.space = [](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = 20 * kGiB, .available = kSize - 1};
  };
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device(0).size, kSize);
  EXPECT_EQ(tier->device(0).grown_from, 0u);
  EXPECT_EQ(tier->ssd_mode(), SsdMode::kReduced);
  EXPECT_THAT(tier->ssd_mode_reason(),
              AllOf(HasSubstr("keeps its 64 MiB, and ssd.file_size is 128 MiB"), HasSubstr("64 MiB more do not fit")));
  EXPECT_THAT(ListOf(*tier, "1000/lost"), SizeIs(1));
  Persist(tier.get(), "1000/new", 1);
}

TEST_F(FileSize, ASmallerOneKeepsTheFilesAndIsTold) {
  (void)FirstStart(Persisted::kThere);
  (void)Open(PairOf(kLarger));
  const auto tier = Open(PairOf(kSize));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device(1).size, kLarger);
  EXPECT_EQ(tier->ssd_mode(), SsdMode::kFull) << tier->ssd_mode_reason();
  EXPECT_THAT(tier->device(1).size_note, HasSubstr(lost_ + " keeps its 128 MiB"));
}

// Neither the one that is not this tierd's, nor any where a path is wrong.
TEST_F(FileSize, NothingGrowsThatTheStartDoesNotUse) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions wrong = PairOf(kLarger);
  wrong.devices.push_back({.path = directory_.File("tsol.img"), .size = kLarger});
  ASSERT_TRUE(testing::RunCommand("yes foreign | head -c 64M > " + wrong.devices[2].path));
  EXPECT_EQ(Refusal(wrong), Code::kInvalid);
  EXPECT_EQ(SizeAt(lost_), kSize);
  EXPECT_EQ(std::filesystem::file_size(lost_), kSize);
  Lose(Loss::kSwapped);
  const auto tier = Open(PairOf(kLarger));
  ASSERT_NE(tier, nullptr);
  EXPECT_THAT(tier->missing_devices(), SizeIs(1));
  EXPECT_EQ(tier->device(0).size, kLarger);
  EXPECT_TRUE(IsAsFound()) << "not a byte of it is tierd's";
}

TEST_F(FileSize, AStartThatIsRefusedForItsIndexGrowsNothing) {
  (void)FirstStart(Persisted::kThere);
  std::filesystem::rename(directory_.File("index.mdb"), kept_);
  EXPECT_EQ(Refusal(PairOf(kLarger)), Code::kCorrupt);
  EXPECT_EQ(SizeAt(lost_), kSize);
  EXPECT_EQ(std::filesystem::file_size(lost_), kSize);
}

TEST_F(FileSize, AStartThatIsRefusedForAnOldCopyOfItsIndexGrowsNothing) {
  (void)FirstStart(Persisted::kThere);
  const std::string index = directory_.File("index.mdb");
  std::filesystem::copy_file(index, kept_);
  Persist(Open(Pair()).get(), "1000/later", 1);
  std::filesystem::rename(kept_, index);
  EXPECT_EQ(Refusal(PairOf(kLarger)), Code::kCorrupt);
  EXPECT_EQ(SizeAt(lost_), kSize);
  EXPECT_EQ(std::filesystem::file_size(lost_), kSize);
}

TEST_F(FileSize, AGrowthLeavesRoomForTheIndexBesideIt) {
  (void)FirstStart(Persisted::kThere);
  const uint64_t room = RoomForIndex(directory_.path(), lost_);
  ASSERT_GT(room, kIndexDiskKept);
  EXPECT_EQ(RoomForIndex("", lost_), 0u) << "nothing is kept";
  SsdTierOptions options = PairOf(kLarger);
  uint64_t available = kSize + room - 1;
  options.space = [&available](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = 20 * kGiB, .available = available};
  };
  {
    const auto tier = Open(options);
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->device(0).size, kSize);
    EXPECT_THAT(tier->ssd_mode_reason(), HasSubstr("stay free for the index"));
  }
  ++available;
  EXPECT_EQ(Open(options)->device(0).size, kLarger);
}

TEST_F(FileSize, WhatAnInterruptedGrowthLeftIsGivenBackAndTold) {
  (void)FirstStart(Persisted::kThere);
  std::filesystem::resize_file(lost_, kLarger);
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(std::filesystem::file_size(lost_), kSize);
  EXPECT_THAT(tier->device(1).size_note, HasSubstr(lost_ + " was cut from 128 MiB to the 64 MiB"));
  EXPECT_THAT(ListOf(*tier, "1000/lost"), SizeIs(1));
}

TEST_F(FileSize, TheManagerIsToldThatGrowingTakesTime) {
  (void)FirstStart(Persisted::kThere);
  base::Duration longest{};
  SsdTierOptions options = PairOf(kSize);
  options.on_wait = [&](base::Duration wait) { longest = std::max(longest, wait); };
  (void)Open(options);
  EXPECT_LT(longest, kMakeWait);
  options.devices = PairOf(kLarger).devices;
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(longest, kMakeWait);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
}

}  // namespace
}  // namespace tier::storage
