// What becomes of a tier whose file does not fit, or cannot be made: refused, smaller, or none, and said.
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/ssd_tier_fixture.h"

namespace tier::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSize = 64 * kMiB;

using SsdModeTest = testing::SsdTierFixture;

// Options of a tier whose size nobody said, on a disk of 20 GiB that has this much free.
SsdTierOptions DefaultOptions(const std::string& path, uint64_t available, Need need) {
  SsdTierOptions options;
  options.devices = {{.path = path, .need = need}};
  options.space = [available](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = 20 * kGiB, .available = available};
  };
  return options;
}

TEST_F(SsdModeTest, CutsTheDefaultFileDownToTheRoomThereIsAndSaysSo) {
  const auto tier = Open(DefaultOptions(directory_.File("tier.img"), 11 * kGiB, Need::kIfRoom));
  ASSERT_EQ(tier->device_count(), 1);
  EXPECT_EQ(tier->device(0).size, kGiB);
  EXPECT_EQ(tier->ssd_mode(), SsdMode::kReduced);
  EXPECT_THAT(tier->ssd_mode_reason(), HasSubstr("11 GiB of 20 GiB are free"));
}

TEST_F(SsdModeTest, ADefaultFileStaysReducedForAsLongAsTheDiskIsFull) {
  const std::string path = directory_.File("tier.img");
  (void)Open(DefaultOptions(path, 11 * kGiB, Need::kIfRoom));
  EXPECT_EQ(Open(DefaultOptions(path, 10 * kGiB, Need::kIfRoom))->ssd_mode(), SsdMode::kReduced);
  EXPECT_EQ(Open(DefaultOptions(path, 19 * kGiB, Need::kIfRoom))->ssd_mode(), SsdMode::kFull);
  EXPECT_EQ(Open(DefaultOptions(path, 10 * kGiB, Need::kRequired))->ssd_mode(), SsdMode::kFull) << "it was asked for";
}

TEST_F(SsdModeTest, DoesWithoutTheDefaultFileWhereThereIsNoRoomAndSaysSo) {
  const std::string path = directory_.File("tier.img");
  for (const Need need : {Need::kIfRoom, Need::kIfPossible}) {
    const auto tier = Open(DefaultOptions(path, 10 * kGiB, need));
    EXPECT_EQ(tier->device_count(), 0);
    EXPECT_EQ(tier->ssd_mode(), SsdMode::kNone);
    EXPECT_THAT(tier->ssd_mode_reason(), HasSubstr("no room for an SSD file of 1 GiB or more"));
    EXPECT_EQ(tier->extents().Allocate(1).error().code, Code::kNoSpace);
    EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is left of the attempt";
  }
}

TEST_F(SsdModeTest, RefusesWhereTheFileWasAskedFor) {
  EXPECT_EQ(Refusal(DefaultOptions(directory_.File("tier.img"), 10 * kGiB, Need::kRequired)), Code::kNoSpace);
  SsdTierOptions sized = DefaultOptions(directory_.File("tier.img"), kSize - 1, Need::kRequired);
  sized.devices[0].size = kSize;
  EXPECT_EQ(Refusal(sized), Code::kNoSpace);
}

TEST_F(SsdModeTest, OnlyAFileThatKeepsNothingMayBeMissingForAnyReason) {
  const std::string nowhere = directory_.File("no/such/tier.img");
  EXPECT_EQ(Refusal(DefaultOptions(nowhere, 100 * kGiB, Need::kIfRoom)), Code::kNotFound);
  const auto tier = Open(DefaultOptions(nowhere, 100 * kGiB, Need::kIfPossible));
  EXPECT_EQ(tier->ssd_mode(), SsdMode::kNone);
  EXPECT_THAT(tier->ssd_mode_reason(), HasSubstr(directory_.path()));
}

TEST_F(SsdModeTest, WithoutDevicesTheModeIsAsConfigured) {
  const auto none = Open({});
  EXPECT_EQ(none->ssd_mode(), SsdMode::kNone);
  EXPECT_EQ(none->ssd_mode_reason(), "");
  SsdTierOptions sized;
  sized.devices = {{.path = directory_.File("tier.img"), .size = kSize}};
  const auto full = Open(sized);
  EXPECT_EQ(full->ssd_mode(), SsdMode::kFull);
  EXPECT_EQ(full->ssd_mode_reason(), "");
}

}  // namespace
}  // namespace tier::storage
