// From configured paths to the report: over folders that look like /sys, and log pages as devices give them.
#include "tools/smart/look.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
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

// What the threads of a look ask. They may outlive it: in each test the last one ends before the next test begins.
struct Machine {
  std::string sys;
  std::map<std::string, LogPage> pages;
  bool second = false;  // The file lies on one more device.
  std::string part;     // Of the device below the file, of which nothing can be known.
  bool unread = false;  // sysfs cannot be read in part.
  std::set<std::string> hanging;
  std::latch gate{1};

  Result<DisksBehind> Behind(const std::string& path) {
    if (hanging.contains(path)) return Hang();
    const auto number = DeviceNumberOf(path);
    if (!number) return std::unexpected(number.error());
    auto behind = NvmeDisksBehind(*number, sys);
    if (!behind) return behind;
    if (second) behind->disks.push_back({.name = "nvme1n1", .serial = "SECOND"});
    if (!part.empty()) behind->unknown.push_back(part);
    behind->may_be_more = unread;
    return behind;
  }
  Result<LogPage> Read(const std::string& device) {
    if (hanging.contains(device)) return Hang();
    const auto page = pages.find(device);
    if (page == pages.end()) return Fail(Code::kIoError, device + ": it does not answer");
    return page->second;
  }
  std::unexpected<Error> Hang() {
    gate.wait();
    return Fail(Code::kIoError, "it answers late");
  }
};

class LookTest : public ::testing::Test {
 protected:
  LookTest() {
    std::ofstream(file_) << "x";
    struct stat about{};
    EXPECT_EQ(::stat(file_.c_str(), &about), 0);
    // The file system of the file is on a disk of this name.
    const std::string numbers = std::to_string(major(about.st_dev)) + ":" + std::to_string(minor(about.st_dev));
    fs::create_directories(sys_ / "dev/block");
    fs::create_directories(sys_ / "devices/nvme0n1/device");
    fs::create_directory_symlink(sys_ / "devices/nvme0n1", sys_ / "dev/block" / numbers);
    SetSerial("FIRST");
    machine_->sys = sys_.string();
    machine_->pages["/dev/nvme0n1"] = Page(0);
  }
  ~LookTest() override {
    machine_->gate.count_down();
    while (machine_.use_count() > 1) std::this_thread::yield();
  }
  void SetSerial(const std::string& serial) { std::ofstream(sys_ / "devices/nvme0n1/device/serial") << serial << "\n"; }
  storage::SmartReport LookAt(const std::vector<std::string>& paths, const storage::SmartReport& before = {}) {
    said_.clear();
    LookParts parts{.disks_behind = [machine = machine_](const std::string& path) { return machine->Behind(path); },
                    .read_page = [machine = machine_](const std::string& device) { return machine->Read(device); },
                    .warn = [this](const std::string& sentence) { said_.push_back(sentence); }};
    if (!machine_->hanging.empty()) {
      parts.gives_up = [hanging = machine_->hanging](const std::vector<std::string>& unanswered) {
        std::this_thread::yield();
        return std::ranges::all_of(unanswered, [&](const std::string& name) { return hanging.contains(name); });
      };
    }
    return Look(paths, before, kNow, parts);
  }
  // As of ten minutes ago, with this warning.
  storage::SmartReport Before(uint8_t warnings) {
    machine_->pages["/dev/nvme0n1"] = Page(warnings);
    storage::SmartReport before = LookAt({file_});
    before.time = kNow - 600;
    for (storage::SmartDevice& device : before.devices) device.time = kNow - 600;
    return before;
  }

  const storage::testing::ScratchDirectory directory_;
  const fs::path sys_ = directory_.File("sys");
  const std::string file_ = directory_.File("tier.ssd");
  const std::shared_ptr<Machine> machine_ = std::make_shared<Machine>();
  std::vector<std::string> said_;
};

TEST_F(LookTest, WhatADeviceSaysIsReported) {
  const storage::SmartReport report = LookAt({file_, file_});
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(report.time, kNow);
  ASSERT_THAT(report.devices, SizeIs(1)) << "a path that is named twice";
  EXPECT_EQ(report.devices[0].path, file_);
  EXPECT_EQ(report.devices[0].name, "nvme0n1");
  EXPECT_EQ(report.devices[0].serial, "FIRST");
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
  machine_->second = true;
  machine_->pages["/dev/nvme1n1"] = Page(1);
  const storage::SmartReport report = LookAt({file_});
  ASSERT_THAT(report.devices, SizeIs(2));
  const auto health = storage::HealthOf(report, file_);
  ASSERT_TRUE(health);
  EXPECT_EQ(health->figures.warnings, 1);
  EXPECT_EQ(health->figures.written_bytes, 2 * 1'234'567ull * 512'000);
}

TEST_F(LookTest, ADeadMemberHidesNoWarningOfItsSiblings) {
  machine_->second = true;
  machine_->pages["/dev/nvme1n1"] = Page(4);
  const storage::SmartReport before = Before(0);
  machine_->pages.erase("/dev/nvme1n1");
  machine_->pages["/dev/nvme0n1"] = Page(1);
  storage::SmartReport report = LookAt({file_}, before);
  ASSERT_THAT(report.devices, SizeIs(2));
  EXPECT_EQ(report.devices[0].figures.warnings, 1);
  EXPECT_EQ(report.devices[0].time, kNow);
  EXPECT_EQ(report.devices[1], before.devices[1]) << "what the dead one said last";
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nothing new is known of /dev/nvme1n1: it does not answer")));
  EXPECT_EQ(storage::HealthOf(report, file_)->figures.warnings, 5);
  EXPECT_EQ(storage::HealthOf(report, file_)->time, kNow - 600) << "one of them is silent";
  report = LookAt({file_});
  EXPECT_THAT(report.devices, SizeIs(1)) << "of which nothing was known before";
  EXPECT_EQ(storage::HealthOf(report, file_)->figures.warnings, 1);
}

TEST_F(LookTest, APartThatIsNoNvmeDeviceHidesNoOther) {
  machine_->part = "sda is no NVMe device";
  EXPECT_THAT(LookAt({file_}).devices, SizeIs(1));
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("a part of " + file_), HasSubstr("sda is no NVMe device"))));
}

TEST_F(LookTest, ADeviceThatHangsHoldsUpNoOther) {
  machine_->second = true;
  machine_->pages["/dev/nvme1n1"] = Page(4);
  const storage::SmartReport before = Before(0);
  machine_->hanging = {"/dev/nvme1n1"};
  const storage::SmartReport report = LookAt({file_}, before);
  ASSERT_THAT(report.devices, SizeIs(2));
  EXPECT_EQ(report.devices[0].time, kNow);
  EXPECT_EQ(report.devices[1], before.devices[1]);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nothing new is known of /dev/nvme1n1: it has not answered for 20 s")));
}

// As of a file on a dead disk.
TEST_F(LookTest, APathThatHangsHoldsUpNoOther) {
  const storage::SmartReport before = Before(1);
  const std::string other = directory_.File("other.ssd");
  std::ofstream(other) << "x";
  machine_->hanging = {file_};
  const storage::SmartReport report = LookAt({file_, other}, before);
  ASSERT_THAT(report.devices, SizeIs(2));
  EXPECT_EQ(report.devices[0], before.devices[0]);
  EXPECT_EQ(report.devices[1].path, other);
  EXPECT_EQ(report.devices[1].time, kNow);
}

TEST_F(LookTest, OfADeviceThatDoesNotAnswerTheLastFiguresStayWithTheirTime) {
  storage::SmartReport before = Before(1);
  machine_->pages.clear();
  for (int run = 0; run < 3; ++run) {
    const storage::SmartReport report = LookAt({file_}, before);
    EXPECT_EQ(report.time, kNow);
    EXPECT_EQ(report.devices, before.devices) << "run " << run;
    EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("nothing new is known of /dev/nvme0n1: it does not answer"),
                                         HasSubstr("600 s ago stays"))));
    before = report;
  }
  machine_->pages["/dev/nvme0n1"] = Page(0);
  const storage::SmartReport report = LookAt({file_}, before);
  EXPECT_EQ(report.devices.at(0).time, kNow);
  EXPECT_EQ(report.devices.at(0).figures.warnings, 0);
}

TEST_F(LookTest, ADeviceOfTheSameNameAndAnotherSerialNumberReplacesItsPredecessor) {
  const storage::SmartReport before = Before(1);
  machine_->pages.clear();
  SetSerial("ANOTHER");
  EXPECT_THAT(LookAt({file_}, before).devices, IsEmpty()) << "the warning was of another device";
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nothing is known of /dev/nvme0n1")));
}

TEST_F(LookTest, OfADeviceThatIsNotThereAnyMoreNothingStays) {
  storage::SmartReport before = Before(1);
  machine_->second = true;
  machine_->pages["/dev/nvme1n1"] = Page(1);
  before = LookAt({file_}, before);
  machine_->second = false;
  EXPECT_THAT(LookAt({file_}, before).devices, SizeIs(1)) << "a member that was taken out";
  fs::remove(file_);
  EXPECT_THAT(LookAt({file_}, before).devices, IsEmpty());
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("nothing is known of "), HasSubstr("No such file"))));
}

TEST_F(LookTest, WhereSysfsCannotBeReadTheLastFiguresStay) {
  machine_->second = true;
  machine_->pages["/dev/nvme1n1"] = Page(1);
  const storage::SmartReport before = Before(0);
  machine_->second = false;
  machine_->unread = true;
  storage::SmartReport report = LookAt({file_}, before);
  ASSERT_THAT(report.devices, SizeIs(2)) << "a member that is not listed";
  EXPECT_EQ(report.devices[0].time, kNow);
  EXPECT_EQ(report.devices[1], before.devices[1]);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nothing new is known of /dev/nvme1n1; what it said 600 s ago stays")));
  const fs::path looked_up = fs::directory_iterator(sys_ / "dev/block")->path();
  fs::remove(looked_up);
  fs::create_symlink(looked_up.filename(), looked_up);
  EXPECT_EQ(LookAt({file_}, before).devices, before.devices) << "the whole path";
}

TEST_F(LookTest, APathThatIsNotConfiguredAnyMoreIsLeftOut) {
  const storage::SmartReport before = LookAt({file_});
  machine_->pages.clear();
  EXPECT_THAT(LookAt({}, before).devices, IsEmpty());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(LookTest, WhatSaysNothingOrCannotStandInTheFileIsLeftOutWithASentence) {
  machine_->pages["/dev/nvme0n1"] = {};
  std::vector<std::string> paths = {file_, directory_.File("absent"), "/a\tb"};
  EXPECT_THAT(LookAt(paths).devices, IsEmpty());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("control characters"),
                                 HasSubstr("nothing is known of /dev/nvme0n1: this is no SMART log page"),
                                 AllOf(HasSubstr("nothing is known of "), HasSubstr("absent: No such file"))));
  machine_->pages["/dev/nvme0n1"] = Page(0);
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
