// Which NVMe devices a path stands on, in folders that look like /sys.
#include "tools/smart/disks.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/smart_file.h"
#include "tests/support/storage/scratch.h"

namespace tier::smart {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of devices whose serial number sysfs does not have.
Disk Named(const std::string& name) { return {.name = name, .serial = storage::kSmartSerialUnknown}; }

class Disks : public ::testing::Test {
 protected:
  Disks() { fs::create_directories(sys_ / "dev/block"); }
  // A block device with its numbers; `folder` below /sys/devices.
  void Add(const std::string& folder, unsigned major, unsigned minor) {
    fs::create_directories(sys_ / "devices" / folder);
    fs::create_directory_symlink(sys_ / "devices" / folder,
                                 sys_ / "dev/block" / (std::to_string(major) + ":" + std::to_string(minor)));
  }
  void AddPartition(const std::string& folder, unsigned major, unsigned minor) {
    Add(folder, major, minor);
    std::ofstream(sys_ / "devices" / folder / "partition") << "1\n";
  }
  void MakeOf(const std::string& folder, const std::vector<std::string>& slaves) {
    fs::create_directories(sys_ / "devices" / folder / "slaves");
    for (const std::string& slave : slaves) {
      fs::create_directory_symlink(sys_ / "devices" / slave,
                                   sys_ / "devices" / folder / "slaves" / fs::path(slave).filename());
    }
  }
  auto Behind(unsigned major, unsigned minor) { return NvmeDisksBehind(makedev(major, minor), sys_.string()); }

  const storage::testing::ScratchDirectory directory_;
  const fs::path sys_ = directory_.File("sys");
};

TEST_F(Disks, ADiskAndItsPartitionAreTheDisk) {
  Add("pci/nvme0n1", 259, 0);
  AddPartition("pci/nvme0n1/nvme0n1p2", 259, 2);
  EXPECT_THAT(Behind(259, 0)->disks, ElementsAre(Named("nvme0n1")));
  EXPECT_THAT(Behind(259, 2)->disks, ElementsAre(Named("nvme0n1")));
  EXPECT_THAT(Behind(259, 2)->unknown, IsEmpty());
}

TEST_F(Disks, ASerialNumberIsOneWord) {
  Add("pci/nvme0n1", 259, 0);
  AddPartition("pci/nvme0n1/nvme0n1p2", 259, 2);
  fs::create_directories(sys_ / "devices/pci/nvme0n1/device");
  const auto told = [this](const std::string& serial) {
    std::ofstream(sys_ / "devices/pci/nvme0n1/device/serial") << serial;
    return Behind(259, 2)->disks.at(0).serial;
  };
  EXPECT_EQ(told("S4EWNX0R123456      \n"), "S4EWNX0R123456");
  EXPECT_EQ(told("S4EW NX\x01\n"), "S4EW_NX_");
  EXPECT_EQ(told("    \n"), storage::kSmartSerialUnknown);
  EXPECT_EQ(told(std::string(200, 'x')), std::string(storage::kSmartWordMax, 'x'));
}

TEST_F(Disks, WhatIsMadeOfSeveralDevicesIsAllOfThemOnce) {
  Add("pci/nvme1n1", 259, 1);
  Add("pci/nvme0n1", 259, 0);
  AddPartition("pci/nvme0n1/nvme0n1p1", 259, 2);
  AddPartition("pci/nvme0n1/nvme0n1p2", 259, 3);
  Add("virtual/md0", 9, 0);
  MakeOf("virtual/md0", {"pci/nvme1n1", "pci/nvme0n1/nvme0n1p1"});
  Add("virtual/dm-0", 253, 0);
  MakeOf("virtual/dm-0", {"virtual/md0", "pci/nvme0n1/nvme0n1p2"});
  EXPECT_THAT(Behind(253, 0)->disks, ElementsAre(Named("nvme0n1"), Named("nvme1n1")));
}

// A disk that the kernel has removed leaves a link to nothing for a while.
TEST_F(Disks, APartOfWhichNothingIsKnownHidesNoOther) {
  Add("pci/nvme0n1", 259, 0);
  Add("pci/sda", 8, 0);
  Add("virtual/md0", 9, 0);
  MakeOf("virtual/md0", {"pci/nvme0n1", "pci/sda", "pci/nvme1n1"});
  const auto behind = Behind(9, 0);
  ASSERT_TRUE(behind) << behind.error().message;
  EXPECT_THAT(behind->disks, ElementsAre(Named("nvme0n1")));
  EXPECT_THAT(behind->unknown, ElementsAre(HasSubstr("nvme1n1: No such file"), HasSubstr("sda is no NVMe device")));
  EXPECT_FALSE(behind->may_be_more);
}

TEST_F(Disks, WhatIsNoNvmeDeviceIsNamed) {
  Add("virtual/loop0", 7, 0);
  MakeOf("virtual/loop0", {});
  Add("pci/sda", 8, 0);
  Add("pci/nvme0c0n1x", 259, 9);
  const auto loop = Behind(7, 0);
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().code, Code::kNotFound);
  EXPECT_THAT(loop.error().message, HasSubstr("loop0 is no NVMe device"));
  EXPECT_THAT(Behind(8, 0).error().message, HasSubstr("sda is no NVMe device"));
  EXPECT_THAT(Behind(259, 9).error().message, HasSubstr("nvme0c0n1x is no NVMe device"));
  Add("virtual/md1", 9, 1);
  MakeOf("virtual/md1", {"pci/sda"});
  EXPECT_THAT(Behind(9, 1).error().message, HasSubstr("sda is no NVMe device"));
}

TEST_F(Disks, WhatTheSystemDoesNotKnowIsSaidSo) {
  const auto unknown = Behind(0, 45);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("0:45"));
}

// What cannot be looked up may be there: what it said before is not to be lost.
TEST_F(Disks, WhatCannotBeLookedUpIsNotSaidToBeAbsent) {
  fs::create_symlink("259:7", sys_ / "dev/block/259:7");
  EXPECT_EQ(Behind(259, 7).error().code, Code::kIoError);
  Add("virtual/md0", 9, 0);
  MakeOf("virtual/md0", {});
  fs::create_symlink("nvme1n1", sys_ / "devices/virtual/md0/slaves/nvme1n1");
  EXPECT_EQ(Behind(9, 0).error().code, Code::kIoError) << "all that it is made of";
  Add("virtual/md1", 9, 1);
  fs::create_symlink("slaves", sys_ / "devices/virtual/md1/slaves");
  EXPECT_EQ(Behind(9, 1).error().code, Code::kIoError) << "it is not known what it is made of";
  Add("pci/nvme0n1", 259, 0);
  fs::create_directory_symlink(sys_ / "devices/pci/nvme0n1", sys_ / "devices/virtual/md0/slaves/nvme0n1");
  const auto behind = Behind(9, 0);
  ASSERT_TRUE(behind) << behind.error().message;
  EXPECT_THAT(behind->disks, ElementsAre(Named("nvme0n1")));
  EXPECT_TRUE(behind->may_be_more);
}

TEST_F(Disks, ADeviceThatIsMadeOfItselfEnds) {
  Add("virtual/dm-1", 253, 1);
  MakeOf("virtual/dm-1", {"virtual/dm-1"});
  EXPECT_EQ(Behind(253, 1).error().code, Code::kInvalid);
}

TEST_F(Disks, AFileIsOnTheDeviceOfItsFileSystem) {
  const std::string path = directory_.File("tier.ssd");
  std::ofstream(path) << "x";
  struct stat about{};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(DeviceNumberOf(path), about.st_dev);
  EXPECT_EQ(DeviceNumberOf(directory_.File("absent")).error().code, Code::kNotFound);
  EXPECT_EQ(DeviceNumberOf(path + "/below").error().code, Code::kNotFound);
  const std::string loop = directory_.File("loop");
  fs::create_symlink(loop, loop);
  EXPECT_EQ(DeviceNumberOf(loop).error().code, Code::kIoError) << "it is not known that nothing is there";
}

}  // namespace
}  // namespace tier::smart
