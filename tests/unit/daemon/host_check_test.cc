// Paths that --check-config tells to be wrong on this host.
#include "daemon/host_check.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostCheck : public ::testing::Test {
 protected:
  HostCheck() {
    char pattern[] = "/tmp/tier-host-check-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    std::ofstream(directory_ + "/file") << "x";
    paths_ = {.socket_directory = directory_ + "/run", .data_directory = directory_ + "/data"};
    config_.ssd.any_file_system = true;
  }
  ~HostCheck() override { std::filesystem::remove_all(directory_); }
  std::string Mistake(const std::string& device = {}) {
    if (!device.empty()) config_.ssd.devices = {device};
    const Status checked = CheckHostPaths(config_, paths_);
    return checked ? std::string() : checked.error().message;
  }

  std::string directory_;
  DaemonPaths paths_;
  config::Config config_ = config::DefaultConfig();
};

TEST_F(HostCheck, WhatIsThereOrCanBeMadeIsRight) {
  EXPECT_EQ(Mistake(), "");
  EXPECT_EQ(Mistake("none"), "");
  EXPECT_EQ(Mistake(directory_ + "/file"), "");
  EXPECT_EQ(Mistake(directory_ + "/new.ssd"), "");
  paths_.data_directory = directory_ + "/not/yet/there";
  EXPECT_EQ(Mistake(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/not")) << "nothing is made";
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/new.ssd"));
}

TEST_F(HostCheck, ADeviceThatIsNotThereIsNamed) {
  EXPECT_THAT(Mistake("/dev/nope"), AllOf(HasSubstr("ssd.devices: /dev/nope does not exist"), HasSubstr("lsblk")));
}

TEST_F(HostCheck, ADeviceThatIsNoneIsNamed) {
  EXPECT_THAT(Mistake("/dev/null"), HasSubstr("ssd.devices: /dev/null is neither a block device nor a regular file"));
  EXPECT_THAT(Mistake(directory_), HasSubstr("is neither a block device nor a regular file"));
  EXPECT_THAT(Mistake(directory_ + "/absent/tier.ssd"), HasSubstr("ssd.devices: "));
  EXPECT_THAT(Mistake(directory_ + "/file/tier.ssd"), HasSubstr("ssd.devices: "));
}

TEST_F(HostCheck, AFileSystemThatCannotServeIsNamed) {
  config_.ssd.any_file_system = false;
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "needs /dev/shm";
  EXPECT_THAT(Mistake("/dev/shm/tier.ssd"), AllOf(HasSubstr("ssd.devices: "), HasSubstr("tmpfs")));
}

TEST_F(HostCheck, ADirectoryWithAFileInTheWayIsNamed) {
  paths_.socket_directory = directory_ + "/file";
  EXPECT_THAT(Mistake(), AllOf(HasSubstr("daemon.socket_directory"), HasSubstr("/file is in the way")));
  paths_.socket_directory = directory_;
  paths_.data_directory = directory_ + "/file/below";
  EXPECT_THAT(Mistake(), AllOf(HasSubstr("daemon.data_directory"), HasSubstr("/file is in the way")));
}

}  // namespace
}  // namespace tier
