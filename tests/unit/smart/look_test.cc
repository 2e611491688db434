// From configured paths to the report: over folders that look like /sys, and log pages as devices give them.
#include "tools/smart/look.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/scratch.h"
#include "tools/smart/disks.h"

namespace tier::smart {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kNow = 1'764'266'400;

// 38 °C, 100 % of the spare left, a threshold of 10 %, 2 % used, 1,234,567 data units written.
LogPage Page(uint8_t warnings) {
  LogPage page{};
  page[0] = std::byte{warnings};
  page[1] = std::byte{311 & 0xff};
  page[2] = std::byte{311 >> 8};
  page[3] = std::byte{100};
  page[4] = std::byte{10};
  page[5] = std::byte{2};
  for (size_t i = 0; i < 4; ++i) page[48 + i] = static_cast<std::byte>(1'234'567u >> (8 * i));
  return page;
}

class LookTest : public ::testing::Test {
 protected:
  LookTest() {
    std::ofstream(file_) << "x";
    struct stat about{};
    EXPECT_EQ(::stat(file_.c_str(), &about), 0);
    // The file system of the file is on a disk of this name.
    const std::string numbers = std::to_string(major(about.st_dev)) + ":" + std::to_string(minor(about.st_dev));
    fs::create_directories(sys_ / "dev/block");
    fs::create_directories(sys_ / "devices/nvme0n1");
    fs::create_directory_symlink(sys_ / "devices/nvme0n1", sys_ / "dev/block" / numbers);
    pages_["/dev/nvme0n1"] = Page(0);
  }
  storage::SmartReport LookAt(const std::vector<std::string>& paths, const storage::SmartReport& before = {}) {
    said_.clear();
    return Look(paths, before, kNow,
                {.disks_behind = [this](const std::string& path) -> Result<std::vector<std::string>> {
                   const auto number = DeviceNumberOf(path);
                   if (!number) return std::unexpected(number.error());
                   auto disks = NvmeDisksBehind(*number, sys_.string());
                   if (disks && second_) disks->push_back("/dev/nvme1n1");
                   return disks;
                 },
                 .read_page = [this](const std::string& disk) -> Result<LogPage> {
                   const auto page = pages_.find(disk);
                   if (page == pages_.end()) return Fail(Code::kIoError, disk + ": it does not answer");
                   return page->second;
                 },
                 .warn = [this](const std::string& sentence) { said_.push_back(sentence); }});
  }

  const storage::testing::ScratchDirectory directory_;
  const fs::path sys_ = directory_.File("sys");
  const std::string file_ = directory_.File("tier.ssd");
  std::map<std::string, LogPage> pages_;
  bool second_ = false;  // The file lies on one more device.
  std::vector<std::string> said_;
};

TEST_F(LookTest, WhatADeviceSaysIsReported) {
  const storage::SmartReport report = LookAt({file_, file_});
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(report.time, kNow);
  ASSERT_THAT(report.devices, SizeIs(1)) << "a path that is named twice";
  EXPECT_EQ(report.devices[0].path, file_);
  EXPECT_EQ(report.devices[0].time, kNow);
  EXPECT_EQ(report.devices[0].figures, (storage::SmartFigures{.warnings = 0,
                                                              .temperature_kelvin = 311,
                                                              .available_spare = 100,
                                                              .spare_threshold = 10,
                                                              .percentage_used = 2,
                                                              .written_bytes = 1'234'567ull * 512'000,
                                                              .media_errors = 0}));
  EXPECT_EQ(storage::ParseSmartReport(storage::FormatSmartReport(report)), report) << "the daemon reads it";
}

TEST_F(LookTest, OfSeveralDevicesBehindAPathTheWorstFiguresCount) {
  second_ = true;
  pages_["/dev/nvme1n1"] = Page(1);
  const storage::SmartReport report = LookAt({file_});
  ASSERT_THAT(report.devices, SizeIs(1));
  EXPECT_EQ(report.devices[0].figures.warnings, 1);
  EXPECT_EQ(report.devices[0].figures.written_bytes, 2 * 1'234'567ull * 512'000);
  pages_.erase("/dev/nvme1n1");
  EXPECT_THAT(LookAt({file_}).devices, IsEmpty()) << "of a part nothing can be said";
}

TEST_F(LookTest, OfADeviceThatDoesNotAnswerTheLastFiguresStayWithTheirTime) {
  pages_["/dev/nvme0n1"] = Page(1);
  storage::SmartReport before = LookAt({file_});
  before.time = before.devices.at(0).time = kNow - 600;
  pages_.clear();
  for (int run = 0; run < 3; ++run) {
    const storage::SmartReport report = LookAt({file_}, before);
    EXPECT_EQ(report.time, kNow);
    EXPECT_EQ(report.devices, before.devices) << "run " << run;
    EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("nothing new is known of /dev/nvme0n1: it does not answer"),
                                         HasSubstr("600 s ago stays"))));
    before = report;
  }
  pages_["/dev/nvme0n1"] = Page(0);
  const storage::SmartReport report = LookAt({file_}, before);
  EXPECT_EQ(report.devices.at(0).time, kNow);
  EXPECT_EQ(report.devices.at(0).figures.warnings, 0);
}

TEST_F(LookTest, APathThatIsNotConfiguredAnyMoreIsLeftOut) {
  const storage::SmartReport before = LookAt({file_});
  pages_.clear();
  EXPECT_THAT(LookAt({}, before).devices, IsEmpty());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(LookTest, WhatSaysNothingOrCannotStandInTheFileIsLeftOutWithASentence) {
  pages_["/dev/nvme0n1"] = {};
  std::vector<std::string> paths = {file_, directory_.File("absent"), "/a\tb"};
  EXPECT_THAT(LookAt(paths).devices, IsEmpty());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nothing is known of /dev/nvme0n1: this is no SMART log page"),
                                 AllOf(HasSubstr("nothing is known of "), HasSubstr("absent: No such file")),
                                 HasSubstr("control characters")));
  pages_["/dev/nvme0n1"] = Page(0);
  paths.clear();
  for (size_t i = 0; i <= storage::kSmartDevicesMax; ++i) {
    paths.push_back(directory_.File(std::to_string(i)));
    std::ofstream(paths.back()) << "x";
  }
  EXPECT_THAT(LookAt(paths).devices, SizeIs(storage::kSmartDevicesMax));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("too many devices")));
}

// What the program uses, as far as a machine without NVMe devices has it.
TEST(PartsOfSystem, AskTheSystem) {
  std::string said;
  const LookParts parts = PartsOfSystem([&said](const std::string& sentence) { said = sentence; });
  const storage::SmartReport report = Look({"/proc/self/status"}, {}, kNow, parts);
  EXPECT_THAT(report.devices, IsEmpty());
  EXPECT_THAT(said, HasSubstr("/proc/self/status: it is on no block device"));
  EXPECT_EQ(parts.read_page("/no/disk").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace tier::smart
