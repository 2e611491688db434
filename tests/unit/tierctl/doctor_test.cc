#include "tools/tierctl/doctor.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tier-doctor-XXXXXX";
    root_ = ::mkdtemp(pattern);
    Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nHugePages_Total: 8\nHugePages_Free: 8\n");
    Write("/proc/sys/kernel/io_uring_disabled", "0\n");
    Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
    machine_.root = root_;
    machine_.memlock_bytes = ~uint64_t{0};
    machine_.open_files = 65536;
    machine_.data_directory = "/var/lib/tierd";
    machine_.runtime_directory = "/run/tierd";
    machine_.try_io_uring = [] { return 0; };
    machine_.writable = [](const std::string&) { return true; };
    machine_.free_bytes = [](const std::string&) { return 500 * kGiB; };
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  Finding Find(const std::string& check) {
    for (const Finding& finding : Examine(machine_)) {
      if (finding.check == check) return finding;
    }
    ADD_FAILURE() << "no check " << check;
    return {};
  }

  std::string root_;
  Machine machine_;
};

TEST_F(DoctorTest, AGoodMachineNeedsNothing) {
  for (const Finding& finding : Examine(machine_)) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.check << ": " << finding.found;
    EXPECT_TRUE(finding.remedy.empty()) << finding.check;
  }
}

TEST_F(DoctorTest, EveryLackHasARemedy) {
  machine_.memlock_bytes = 8 << 20;
  machine_.open_files = 1024;
  machine_.try_io_uring = [] { return EPERM; };
  machine_.writable = [](const std::string&) { return false; };
  machine_.free_bytes = [](const std::string&) { return 3 * kGiB; };
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 1000 kB\nHugePages_Total: 0\nHugePages_Free: 0\n");
  Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise never [deny] force\n");
  for (const Finding& finding : Examine(machine_)) {
    EXPECT_NE(finding.verdict, Verdict::kGood) << finding.check;
    EXPECT_FALSE(finding.remedy.empty()) << finding.check;
  }
}

TEST_F(DoctorTest, SmallMemlockIsALesserModeUnlessTheCapabilityIsThere) {
  machine_.memlock_bytes = 8 << 20;
  EXPECT_EQ(Find("memlock").verdict, Verdict::kDegraded);
  EXPECT_NE(Find("memlock").found.find("8.00 MiB"), std::string::npos);
  machine_.ipc_lock = true;
  EXPECT_EQ(Find("memlock").verdict, Verdict::kGood);
}

TEST_F(DoctorTest, NamesTheSysctlThatForbidsIoUring) {
  machine_.try_io_uring = [] { return EPERM; };
  EXPECT_NE(Find("io_uring").remedy.find("seccomp"), std::string::npos);
  Write("/proc/sys/kernel/io_uring_disabled", "2\n");
  EXPECT_NE(Find("io_uring").remedy.find("sysctl kernel.io_uring_disabled=0"), std::string::npos);
}

TEST_F(DoctorTest, AFullDiskStopsTheDaemon) {
  machine_.free_bytes = [](const std::string&) { return 10 * kGiB; };
  EXPECT_EQ(Find("disk").verdict, Verdict::kBad);
}

TEST_F(DoctorTest, MissingFilesAreNoCrash) {
  machine_.root = root_ + "/absent";
  EXPECT_EQ(Find("memory").verdict, Verdict::kDegraded);
  EXPECT_EQ(Find("huge pages").verdict, Verdict::kDegraded);
}

}  // namespace
}  // namespace tier::tierctl
