// By a sysfs of files, and by the machine's own.
#include "daemon/storage/drive_size.h"

#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::storage {
namespace {

namespace fs = std::filesystem;

class DriveSizeTest : public ::testing::Test {
 protected:
  // A drive of so many sectors with one partition of 100, as "8:0" and "8:1".
  void MakeDrive(const std::string& sectors) {
    const fs::path drive = root_ / "devices/virtual/sda";
    fs::create_directories(drive / "sda1");
    fs::create_directories(root_ / "dev/block");
    std::ofstream(drive / "size") << sectors << '\n';
    std::ofstream(drive / "sda1/size") << "100\n";
    std::ofstream(drive / "sda1/partition") << "1\n";
    fs::create_symlink("../../devices/virtual/sda", root_ / "dev/block/8:0");
    fs::create_symlink("../../devices/virtual/sda/sda1", root_ / "dev/block/8:1");
  }

  session::testing::TemporaryDirectory directory_;
  const fs::path root_ = directory_.path();
};

TEST_F(DriveSizeTest, OfAPartitionIsThatOfItsDrive) {
  MakeDrive("2048");
  EXPECT_EQ(DriveBytes(makedev(8, 0), root_), 1u << 20);
  EXPECT_EQ(DriveBytes(makedev(8, 1), root_), 1u << 20);
}

TEST_F(DriveSizeTest, OfAVolumeOnOthersIsNotKnown) {
  MakeDrive("2048");
  fs::create_directories(root_ / "devices/virtual/sda/slaves");
  EXPECT_EQ(DriveBytes(makedev(8, 0), root_), 1u << 20) << "it lies on none";
  fs::create_directories(root_ / "devices/virtual/sda/slaves/sdb");
  EXPECT_EQ(DriveBytes(makedev(8, 0), root_), std::nullopt);
}

TEST_F(DriveSizeTest, WhatSysfsDoesNotTellIsNotKnown) {
  EXPECT_EQ(DriveBytes(makedev(0, 42), root_), std::nullopt) << "no block device";
  EXPECT_EQ(DriveBytes(directory_.path() + "/missing"), std::nullopt);
  for (const char* sectors : {"", "0", "many", "-1", "99999999999999999999", "36028797018963968"}) {
    fs::remove_all(root_ / "devices");
    fs::remove_all(root_ / "dev");
    MakeDrive(sectors);
    EXPECT_EQ(DriveBytes(makedev(8, 0), root_), std::nullopt) << sectors;
  }
}

}  // namespace
}  // namespace tier::storage
