// Paths that --check-config tells to be wrong on this host.
#include "daemon/host_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/workers.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_file.h"
#include "daemon/ssd_devices.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/ssd_tier.h"
#include "tests/support/session/temporary_directory.h"

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostCheck : public ::testing::Test {
 protected:
  HostCheck() {
    std::ofstream(directory_ + "/file") << "x";
    paths_ = {.socket_directory = directory_ + "/run", .data_directory = directory_ + "/data"};
    config_.ssd.any_file_system = true;
    config_.ssd.file_size = 64 * kMiB;  // Of a new one: by default it depends on the disk.
  }
  std::string Mistake(const std::string& device = {}) {
    if (!device.empty()) config_.ssd.devices = {device};
    const auto checked = CheckHostPaths(config_, paths_);
    return checked ? std::string() : checked.error().message;
  }

  const session::testing::TemporaryDirectory folder_;
  const std::string directory_ = folder_.path();
  DaemonPaths paths_;
  config::Config config_ = config::DefaultConfig();
};

TEST_F(HostCheck, WhatIsThereOrCanBeMadeIsRight) {
  EXPECT_EQ(Mistake(), "");
  EXPECT_EQ(Mistake("none"), "");
  std::ofstream(directory_ + "/blank").close();
  EXPECT_EQ(Mistake(directory_ + "/blank"), "");
  EXPECT_EQ(Mistake(directory_ + "/new.ssd"), "");
  paths_.data_directory = directory_ + "/not/yet/there";
  EXPECT_EQ(Mistake(), "");
  EXPECT_EQ(Mistake(paths_.data_directory + "/new.ssd"), "") << "a start makes that directory";
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

TEST_F(HostCheck, ForeignContentAndADeviceThatIsNamedTwiceAreMistakes) {
  EXPECT_THAT(Mistake(directory_ + "/file"), AllOf(HasSubstr("ssd.devices: "), HasSubstr("/file is left untouched")));
  const std::string device = directory_ + "/a.ssd";
  std::filesystem::create_symlink(device, directory_ + "/link");
  std::ofstream(device).close();
  config_.ssd.devices = {device, directory_ + "/link"};
  EXPECT_THAT(Mistake(), HasSubstr(device + " and " + directory_ + "/link are one device"));
  const Status distinct = CheckDistinctDevices(config_);
  ASSERT_FALSE(distinct);
  EXPECT_EQ(distinct.error().code, Code::kInvalid);
  config_.ssd.devices.pop_back();
  EXPECT_EQ(Mistake(), "");
  EXPECT_TRUE(CheckDistinctDevices(config_));
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

TEST_F(HostCheck, ADirectoryWhereTheKernelMakesNoneIsNamed) {
  for (const char* place : {"/proc/tierd", "/sys/deep/tierd"}) {
    paths_.socket_directory = place;
    EXPECT_THAT(Mistake(), AllOf(HasSubstr("daemon.socket_directory is "), HasSubstr("nothing can be made in /")));
  }
}

TEST_F(HostCheck, ADirectoryThatOnlyThisUserMayNotWriteIsToldAndNoMistake) {
  if (::geteuid() == 0) GTEST_SKIP() << "needs a user whom the kernel refuses something";
  config_.ssd.devices = {"none"};
  std::filesystem::permissions(directory_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto notes = CheckHostPaths(config_, paths_);
  std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
  ASSERT_TRUE(notes) << notes.error().message;
  EXPECT_THAT(*notes, ElementsAre(HasSubstr("daemon.socket_directory: not checked"),
                                  HasSubstr("daemon.data_directory: not checked")));
}

TEST_F(HostCheck, ASmartFileThatTierdSmartDidNotWriteIsNamed) {
  config_.ssd.smart_file = directory_ + "/absent";
  EXPECT_EQ(Mistake(), "");
  config_.ssd.smart_file = directory_ + "/file";
  EXPECT_THAT(Mistake(), AllOf(HasSubstr("ssd.smart_file: "), HasSubstr("/file is left untouched")));
  config_.ssd.smart_file = directory_;
  EXPECT_THAT(Mistake(), HasSubstr("ssd.smart_file: "));
  config_.daemon.is_private = true;
  EXPECT_EQ(Mistake(), "") << "a private daemon reads none";
}

// What the daemon takes beside the arena counts, or a machine that is sized by this report is too small.
TEST_F(HostCheck, TheIndexCountsInTheSizes) {
  config_.arena.maximum = {.bytes = 256 * kMiB};
  config_.jobs.max_metadata = 128 * kMiB;
  const std::string index = storage::IndexPath(paths_.data_directory);
  EXPECT_THAT(DescribeSizes(config_, paths_),
              ElementsAre(AllOf(HasSubstr("memory: 640 MiB with one user and a full arena, beside the program itself: "
                                          "256 MiB for tensors (arena.maximum), "
                                          "128 MiB for records of a user (jobs.max_metadata), 256 MiB for the index"),
                                HasSubstr("page cache")),
                          HasSubstr("disk: 256 MiB for the index " + index)));
  std::filesystem::create_directory(paths_.data_directory);
  std::ofstream(index).close();
  std::filesystem::resize_file(index, 512 * kMiB);
  EXPECT_THAT(DescribeSizes(config_, paths_), ElementsAre(HasSubstr("memory: 896 MiB"), HasSubstr("disk: 512 MiB")))
      << "it has grown";
  paths_.persistent = false;
  EXPECT_THAT(DescribeSizes(config_, paths_), ElementsAre(HasSubstr("memory: 384 MiB"))) << "it has no index";
}

// Of a file that is there, with what the disk that it is on has free.
class HostCheckOfAFile : public HostCheck {
 protected:
  HostCheckOfAFile() {
    std::filesystem::create_directory(paths_.data_directory);
    std::ofstream(file_).close();
    std::filesystem::resize_file(file_, 256 * kMiB);
    EXPECT_TRUE(storage::FormatDevice(file_, false));
  }
  std::vector<std::string> Notes(uint64_t file_size) {
    config_.ssd.file_size = file_size;
    const auto notes = CheckHostPaths(config_, paths_);
    EXPECT_TRUE(notes) << notes.error().message;
    return notes.value_or(std::vector<std::string>());
  }
  const std::string file_ = paths_.data_directory + "/tier.ssd";
};

TEST_F(HostCheckOfAFile, SaysWhatTheNextStartMakesOfItsSize) {
  EXPECT_THAT(Notes(0), IsEmpty());
  EXPECT_THAT(Notes(256 * kMiB), IsEmpty());
  EXPECT_THAT(Notes(258 * kMiB),
              ElementsAre("ssd.file_size: " + file_ + " grows from 256 MiB to 258 MiB at the next start"));
  EXPECT_THAT(Notes(uint64_t{1} << 50),
              ElementsAre(AllOf(HasSubstr(file_ + " keeps its 256 MiB"), HasSubstr("do not fit into"))));
  EXPECT_THAT(Notes(64 * kMiB),
              ElementsAre(AllOf(HasSubstr(file_ + " keeps its 256 MiB"), HasSubstr("remove the file"))));
  EXPECT_EQ(std::filesystem::file_size(file_), 256 * kMiB) << "nothing is changed";
}

TEST_F(HostCheckOfAFile, TakesTheSizeOfTheDeviceAndNotOfAFileThatWasBeingExtended) {
  std::filesystem::resize_file(file_, 300 * kMiB);
  EXPECT_THAT(Notes(300 * kMiB),
              ElementsAre("ssd.file_size: " + file_ + " grows from 256 MiB to 300 MiB at the next start"));
  EXPECT_THAT(Notes(256 * kMiB), IsEmpty());
}

TEST_F(HostCheckOfAFile, SaysNothingOfWhatIsNoDeviceYet) {
  config_.ssd.devices = {"none"};
  EXPECT_THAT(Notes(512 * kMiB), IsEmpty());
  config_.ssd.devices = {directory_ + "/blank.ssd"};
  std::ofstream(config_.ssd.devices[0]).close();
  std::filesystem::resize_file(config_.ssd.devices[0], 256 * kMiB);
  EXPECT_THAT(Notes(512 * kMiB), IsEmpty());
}

TEST_F(HostCheckOfAFile, SaysItOfEachFileOfTheDevices) {
  const std::string other = directory_ + "/other.ssd";
  std::filesystem::copy_file(file_, other);
  config_.ssd.devices = {other, directory_ + "/new.ssd"};
  EXPECT_THAT(Notes(258 * kMiB), ElementsAre(HasSubstr(other + " grows")));
}

// A device of which the index knows is gone with its directory, as with a file system that is not mounted.
class HostCheckOfALostDevice : public HostCheck {
 protected:
  HostCheckOfALostDevice() {
    paths_.data_directory = directory_;
    std::filesystem::create_directory(directory_ + "/mount");
    const auto workers = base::Workers::Start(1, "test").value();
    storage::SsdTierOptions options{.devices = {{.path = device_, .size = 64 * kMiB}},
                                    .windows_max = 64,
                                    .data_dir = directory_,
                                    .allow_any_file_system = true};
    EXPECT_TRUE(storage::SsdTier::Open(options, *workers));
    std::filesystem::remove_all(directory_ + "/mount");
    config_.ssd.devices = {device_};
  }
  const std::string device_ = directory_ + "/mount/tier.ssd";
};

TEST_F(HostCheckOfALostDevice, SaysThatTheDaemonStartsWithoutIt) {
  const auto lost = CheckHostPaths(config_, paths_);
  ASSERT_TRUE(lost) << lost.error().message;
  EXPECT_THAT(*lost, ElementsAre(AllOf(HasSubstr(device_), HasSubstr("starts without it"))));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/mount"));
  EXPECT_THAT(Mistake(directory_ + "/muont/tier.ssd"), HasSubstr("ssd.devices: ")) << "a misspelled path is a mistake";
}

// Of a small index all that is not blank.
std::string BeginningOf(const std::string& path) {
  std::string bytes(8 * kMiB, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// A daemon that started without the device has the index: it is not kept from it, and the index stays as it is.
TEST_F(HostCheckOfALostDevice, ReadsTheIndexBesideADaemonAndLeavesItAsItIs) {
  const auto workers = base::Workers::Start(1, "test").value();
  const storage::SsdTierOptions options{.devices = {{.path = device_, .size = 64 * kMiB}},
                                        .windows_max = 64,
                                        .data_dir = directory_,
                                        .allow_any_file_system = true};
  const auto daemon = storage::SsdTier::Open(options, *workers);
  ASSERT_TRUE(daemon) << daemon.error().message;
  const std::string index = storage::IndexPath(directory_);
  const std::string before = BeginningOf(index);
  const auto written = std::filesystem::last_write_time(index);
  const auto lost = CheckHostPaths(config_, paths_);
  ASSERT_TRUE(lost) << lost.error().message;
  EXPECT_THAT(*lost, ElementsAre(AllOf(HasSubstr(device_), HasSubstr("starts without it"))));
  EXPECT_EQ(std::filesystem::last_write_time(index), written);
  EXPECT_TRUE(BeginningOf(index) == before);
  EXPECT_FALSE(std::filesystem::exists(index + "-lock"));
}

TEST_F(HostCheckOfALostDevice, NeedsNoRightToWriteTheIndex) {
  if (::geteuid() == 0) GTEST_SKIP() << "needs a user whom the kernel refuses something";
  std::filesystem::permissions(storage::IndexPath(directory_), std::filesystem::perms::owner_read);
  EXPECT_TRUE(CheckHostPaths(config_, paths_));
}

class KnowsAlice final : public session::UserDirectory {
 public:
  session::UserEntry FindUser(uint32_t) override { return {}; }
  Result<uint32_t> FindUserId(const std::string& name) override {
    if (name == "alice") return 1000;
    return session::NoUser(name);
  }
  Result<uint32_t> FindGroupId(const std::string& name) override {
    return Fail(Code::kTimeout, "the directory does not answer for " + name);
  }
};

TEST_F(HostCheck, AQuotaOfSomebodyWhomTheSystemDoesNotKnowIsToldAndNoMistake) {
  KnowsAlice users;
  for (const char* name : {"alice", "nosuchuser", "1234", "pod-a"}) config_.quota.users[name] = {};
  config_.quota.groups["students"] = {};
  paths_.persistent = true;
  std::filesystem::create_directory(paths_.data_directory);
  ASSERT_TRUE(session::OwnerTable(session::OwnersPath(paths_.data_directory), {}).Open("pod-a"));
  EXPECT_THAT(CheckQuotaNames(config_, paths_, users),
              ElementsAre("this system does not know who quota.user.nosuchuser is: that quota holds for no user"));
  EXPECT_EQ(Mistake(), "");
}

TEST_F(HostCheck, AFileOfQuotasOrOwnersThatTheStartRefusesIsNamed) {
  paths_.persistent = true;
  std::filesystem::create_directory(paths_.data_directory);
  for (const std::string& file :
       {session::QuotasPath(paths_.data_directory), session::OwnersPath(paths_.data_directory)}) {
    std::ofstream(file) << "garbage\n";
    EXPECT_THAT(Mistake(), HasSubstr("cannot be read from " + file));
    std::filesystem::remove(file);
  }
  EXPECT_EQ(Mistake(), "");
}

// The unit's user is in no other group by itself: the start tells what the unit lacks.
TEST_F(HostCheck, AnAdminSocketThatIsNotOfTheGroupIsTold) {
  class Groups final : public session::UserDirectory {
   public:
    session::UserEntry FindUser(uint32_t) override { return {}; }
    Result<uint32_t> FindUserId(const std::string& name) override { return session::NoUser(name); }
    Result<uint32_t> FindGroupId(const std::string& name) override {
      if (name == "own") return ::getegid();
      if (name == "ops" || name == "tierd") return ::getegid() + 1;
      return session::NoGroup(name);
    }
  } groups;
  const std::string socket = directory_ + "/file";
  EXPECT_EQ(CheckAdminSocket(config_.daemon, groups, socket), "") << "the default";
  config_.daemon.admin_group = "own";
  EXPECT_EQ(CheckAdminSocket(config_.daemon, groups, socket), "");
  config_.daemon.admin_group = "nosuchgroup";
  EXPECT_EQ(CheckAdminSocket(config_.daemon, groups, socket), "") << "told by CheckAdminGroup";
  config_.daemon.admin_group = "ops";
  EXPECT_THAT(CheckAdminSocket(config_.daemon, groups, socket),
              AllOf(HasSubstr("daemon.admin_group is ops"), HasSubstr("SupplementaryGroups=ops"), HasSubstr(socket)));
  config_.daemon.is_private = true;
  EXPECT_EQ(CheckAdminSocket(config_.daemon, groups, socket), "");
}

TEST_F(HostCheck, AGroupOfAdministratorsThatTheSystemDoesNotKnowIsTold) {
  class KnowsOperators final : public session::UserDirectory {
   public:
    session::UserEntry FindUser(uint32_t) override { return {}; }
    Result<uint32_t> FindUserId(const std::string& name) override { return session::NoUser(name); }
    Result<uint32_t> FindGroupId(const std::string& name) override {
      if (name == "operators") return 50;
      return session::NoGroup(name);
    }
  } groups;
  EXPECT_EQ(CheckAdminGroup(config_.daemon, groups), "") << "the default, which no package made here";
  config_.daemon.admin_group = "operators";
  EXPECT_EQ(CheckAdminGroup(config_.daemon, groups), "");
  config_.daemon.admin_group = "nosuchgroup";
  EXPECT_THAT(CheckAdminGroup(config_.daemon, groups),
              AllOf(HasSubstr("daemon.admin_group is nosuchgroup"), HasSubstr("only root")));
  config_.daemon.is_private = true;
  EXPECT_EQ(CheckAdminGroup(config_.daemon, groups), "");
}

TEST_F(HostCheck, ANameThatAReloadCannotTakeIsTold) {
  for (const char* listen : {"auto", "", "127.0.0.1:9464", "[::1]:0"}) {
    config_.metrics.listen = listen;
    EXPECT_EQ(CheckMetricsReload(config_), "") << listen;
  }
  config_.metrics.listen = "localhost:9464";
  EXPECT_THAT(CheckMetricsReload(config_), HasSubstr("only a start asks for the address of a name"));
}

TEST_F(HostCheck, ADeadlineThatEndsRequestsBeforeForcedReturnIsTold) {
  EXPECT_EQ(CheckDeadlines(config::DefaultConfig()), "");
  config_.engine.deadline = std::chrono::seconds(31);
  config_.jobs.reclaim_deadline = std::chrono::seconds(30);
  EXPECT_EQ(CheckDeadlines(config_), "");
  config_.engine.deadline = config_.jobs.reclaim_deadline;
  EXPECT_THAT(CheckDeadlines(config_), AllOf(HasSubstr("engine.deadline is \"30s\" and jobs.reclaim_deadline \"30s\""),
                                             HasSubstr("longer one")));
}

TEST_F(HostCheck, MoreSessionsThanThereAreFilesForAreTold) {
  config_.jobs.max_sessions = 150;
  EXPECT_EQ(CheckSessionsMax(config_, 300), "");
  config_.jobs.max_sessions = 16384;
  EXPECT_THAT(CheckSessionsMax(config_, 300),
              HasSubstr("jobs.max_sessions is 16384, and tierd may have 300 open files"));
  config_.daemon.is_private = true;
  EXPECT_EQ(CheckSessionsMax(config_, 300), "");
}

TEST_F(HostCheck, RecordsThatTakeMoreThanAllMemoryAreTold) {
  config_.jobs.max_metadata = 24 * kGiB;
  EXPECT_EQ(CheckMetadataMax(config_, 24 * kGiB), "");
  config_.jobs.max_metadata = 1024 * kGiB;
  EXPECT_THAT(CheckMetadataMax(config_, 24 * kGiB),
              HasSubstr("jobs.max_metadata is 1 TiB, and tierd may have 24 GiB of memory in all"));
}

TEST_F(HostCheck, WhatGoesBadlyTogetherIsToldOfTheOptionThatIsConcerned) {
  config_.engine.deadline = config_.jobs.reclaim_deadline;
  EXPECT_THAT(CheckTogether(config_, "engine.deadline"), ElementsAre(CheckDeadlines(config_)));
  EXPECT_THAT(CheckTogether(config_, "jobs.reclaim_deadline"), ElementsAre(CheckDeadlines(config_)));
  EXPECT_THAT(CheckTogether(config_, "log.level"), IsEmpty());
  EXPECT_THAT(CheckTogether(config_), ::testing::Contains(CheckDeadlines(config_)));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  config_.jobs.max_sessions = before.rlim_max / 2 + 1;
  EXPECT_THAT(CheckTogether(config_, "jobs.max_sessions"), ElementsAre(HasSubstr("open files")));
  config_.jobs.max_metadata = UINT64_MAX;
  EXPECT_THAT(CheckTogether(config_, "jobs.max_metadata"), ElementsAre(HasSubstr("of memory in all")));
}

}  // namespace
}  // namespace tier
