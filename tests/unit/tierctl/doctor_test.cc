#include "tools/tierctl/doctor.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/connection.h"

namespace tier::tierctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nHugePages_Total: 8\nHugePages_Free: 8\n");
    Write("/proc/sys/kernel/io_uring_disabled", "0\n");
    Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
    machine_.root = root_;
    machine_.memlock_bytes = ~uint64_t{0};
    machine_.open_files = 65536;
    machine_.data_directory = "/var/lib/tierd";
    machine_.runtime_directory = "/run/tierd";
    machine_.daemon_program = "tierd";
    machine_.sys_resource = true;
    machine_.settable = [](const std::string&) { return true; };
    machine_.try_io_uring = [] { return 0; };
    machine_.writable = [](const std::string&) { return true; };
    machine_.owner = [](const std::string&) { return std::nullopt; };
    SetFree(500 * kGiB);
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  // Of a file system of 1,000 GiB, where 100 must stay free.
  void SetFree(uint64_t bytes) {
    machine_.space = [bytes](const std::string&) {
      return storage::FileSystemSpace{.total = 1000 * kGiB, .available = bytes};
    };
  }
  void LackEverything() {
    machine_.memlock_bytes = 8 << 20;
    machine_.open_files = 1024;
    machine_.try_io_uring = [] { return EPERM; };
    machine_.writable = [](const std::string&) { return false; };
    SetFree(3 * kGiB);
    Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 3145728 kB\nHugePages_Total: 0\nHugePages_Free: 0\n");
    Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise never [deny] force\n");
  }
  Finding Find(const std::string& check) {
    for (const Finding& finding : Examine(machine_)) {
      if (finding.check == check) return finding;
    }
    ADD_FAILURE() << "no check " << check;
    return {};
  }

  const session::testing::TemporaryDirectory folder_;
  const std::string root_ = folder_.path();
  Machine machine_;
};

TEST_F(DoctorTest, AGoodMachineNeedsNothing) {
  for (const Finding& finding : Examine(machine_)) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.check << ": " << finding.found;
    EXPECT_EQ(finding.remedy + finding.advice, "") << finding.check;
  }
}

TEST_F(DoctorTest, EveryLackHasARemedyOrAdvice) {
  LackEverything();
  for (const uint32_t uid : {0u, 1000u}) {
    for (const bool contained : {false, true}) {
      machine_.uid = uid;
      machine_.sys_resource = !contained;
      machine_.settable = [contained](const std::string&) { return !contained; };
      for (const Finding& finding : Examine(machine_)) {
        EXPECT_NE(finding.verdict, Verdict::kGood) << finding.check;
        EXPECT_FALSE(finding.remedy.empty() && finding.advice.empty()) << finding.check;
      }
    }
  }
}

TEST_F(DoctorTest, EveryRemedyIsALineForTheShellOfWhoAsked) {
  LackEverything();
  Write("/proc/sys/kernel/io_uring_disabled", "2\n");
  const auto remedies = [this] {
    std::vector<std::string> lines;
    for (const Finding& finding : Examine(machine_)) {
      if (!finding.remedy.empty()) lines.push_back(finding.remedy);
    }
    return lines;
  };
  // 3 GiB available: half of it for the arena.
  EXPECT_THAT(remedies(), ElementsAre("tierd --set arena.maximum=1536MiB", "prlimit --pid $$ --memlock=unlimited",
                                      "prlimit --pid $$ --nofile=65536", "echo 768 > /proc/sys/vm/nr_hugepages",
                                      "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
                                      "echo 0 > /proc/sys/kernel/io_uring_disabled"));
  machine_.uid = 1000;
  EXPECT_THAT(
      remedies(),
      ElementsAre("tierd --set arena.maximum=1536MiB", "sudo prlimit --pid $$ --memlock=unlimited",
                  "sudo prlimit --pid $$ --nofile=65536", "echo 768 | sudo tee /proc/sys/vm/nr_hugepages",
                  "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled",
                  "echo 0 | sudo tee /proc/sys/kernel/io_uring_disabled", "sudo install -d -o 1000 /var/lib/tierd"));
}

TEST_F(DoctorTest, ADirectoryOfSomebodyElseIsNeverGivenAway) {
  machine_.uid = 4321;
  machine_.owner = [](const std::string&) { return 0; };
  machine_.writable = [](const std::string&) { return false; };
  for (const char* check : {"sockets", "data directory"}) {
    EXPECT_EQ(Find(check).verdict, Verdict::kBad);
    EXPECT_EQ(Find(check).remedy, "");
  }
  EXPECT_EQ(Find("sockets").found, "uid 4321 may not write /run/tierd, which belongs to uid 0");
  EXPECT_THAT(Find("sockets").advice, HasSubstr("TIERD_SOCKET"));
  machine_.data_directory = "/own/state/tierd";
  machine_.writable = [](const std::string& path) { return path.starts_with("/own/"); };
  EXPECT_EQ(Find("sockets").remedy, "tierd --set daemon.socket_directory=/own/state/tierd-run");
  EXPECT_THAT(Find("sockets").advice, HasSubstr("TIERD_SOCKET=/own/state/tierd-run/tierd.sock"));
  machine_.owner = [](const std::string&) { return std::nullopt; };
  EXPECT_THAT(Find("sockets").remedy, HasSubstr("--set daemon.socket_directory=")) << "nor is a new /run/tierd made";
}

TEST_F(DoctorTest, BesideADaemonItsDirectoriesAreNoLackOfThisLogin) {
  machine_.uid = 4321;
  machine_.owner = [](const std::string&) { return 0; };
  machine_.writable = [](const std::string&) { return false; };
  for (const Finding& finding : WithDaemon(Examine(machine_), v1::NodeStatus(), "/run/tierd/control.sock")) {
    EXPECT_NE(finding.check, "sockets");
    EXPECT_NE(finding.check, "data directory");
  }
}

TEST_F(DoctorTest, BesideADaemonItsOwnPlacesAreChecked) {
  v1::NodeStatus status;
  status.set_data_directory("/srv/tierd");
  status.set_socket_directory("/srv/run");
  status.set_host_available_bytes(8 * kGiB);
  status.set_arena_bytes(16 * kGiB);
  status.set_arena_max_bytes(20 * kGiB);
  v1::Device* const online = status.add_devices();
  online->set_path("/dev/nvme1n1");
  online->set_state(v1::DEVICE_STATE_ONLINE);
  online->set_capacity_bytes(2048 * kGiB);
  online->set_free_bytes(512 * kGiB);
  v1::Device* const offline = status.add_devices();
  offline->set_path("/dev/nvme2n1");
  offline->set_state(v1::DEVICE_STATE_OFFLINE);
  offline->set_state_reason("Input/output error");
  status.add_missing_devices()->set_path("/dev/nvme3n1");
  SetFree(0);  // Of the default place, which is not used.
  std::string text;
  for (const Finding& finding : WithDaemon(Examine(machine_), status, "/srv/run/admin.sock"))
    text += fmt::format("{}: {}\n", finding.check, finding.found);
  EXPECT_THAT(text, HasSubstr("memory: 8.00 GiB available; the arena has 16.0 GiB and may grow to 20.0 GiB\n"));
  EXPECT_THAT(text, HasSubstr("disk: /dev/nvme1n1: 512 GiB free of 2.00 TiB\n"));
  EXPECT_THAT(text, HasSubstr("disk: /dev/nvme2n1: 0 B free of 0 B, offline (Input/output error)\n"));
  EXPECT_THAT(text, HasSubstr("disk: /dev/nvme3n1 is missing"));
  EXPECT_THAT(text, HasSubstr("data directory: /srv/tierd is the daemon's\n"));
  EXPECT_THAT(text, HasSubstr("sockets: /srv/run is the daemon's\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("/var/lib/tierd")));
}

TEST_F(DoctorTest, AShortageOfTheHostIsALesserModeWhileItLasts) {
  const auto memory = [&](const v1::NodeStatus& status) {
    const std::vector<Finding> findings = WithDaemon(Examine(machine_), status, "/srv/run/admin.sock");
    return *std::ranges::find(findings, "memory", &Finding::check);
  };
  v1::NodeStatus status;
  status.set_host_available_bytes(64 * kGiB);
  status.set_arena_max_bytes(20 * kGiB);
  EXPECT_EQ(memory(status).verdict, Verdict::kGood);
  status.set_host_available_bytes(2 * kGiB);
  EXPECT_EQ(memory(status).verdict, Verdict::kNote);
  status.set_arena_stock_bytes(20 * kGiB);
  EXPECT_EQ(memory(status).verdict, Verdict::kGood) << "made ahead of need";
  EXPECT_THAT(memory(status).found, HasSubstr("the arena has 20.0 GiB"));
  status.set_host_shortage("memory.high of /tierd is reached");
  EXPECT_EQ(memory(status).verdict, Verdict::kDegraded);
  EXPECT_THAT(memory(status).found, HasSubstr("20.0 GiB; memory.high of /tierd is reached"));
}

TEST_F(DoctorTest, BeforeTheFirstWindowThereAreNoPages) {
  v1::NodeStatus status;
  status.set_huge_page_mode(v1::HUGE_PAGE_MODE_NONE);
  EXPECT_THAT(WithDaemon({}, status, "/s").back().found, HasSubstr(", pages none yet, "));
}

TEST_F(DoctorTest, OfAMissingDeviceItSaysWhatComesNext) {
  v1::NodeStatus status;
  v1::MissingDevice* const missing = status.add_missing_devices();
  missing->set_path("/dev/nvme3n1");
  const auto advice = [&] {
    for (const Finding& finding : WithDaemon(Examine(machine_), status, "/s"))
      if (finding.found.starts_with("/dev/nvme3n1 is missing")) return finding.advice;
    return std::string("none");
  };
  EXPECT_EQ(advice(), "restart tierd, which makes it again where nothing is at its path");
  missing->set_lost_job_count(2);
  EXPECT_THAT(advice(), HasSubstr("tierctl job list --lost"));
}

TEST_F(DoctorTest, WithoutADaemonItIsSaidThatDefaultPlacesWereChecked) {
  for (const Code code : {Code::kDisconnected, Code::kDenied})
    EXPECT_THAT(WithoutDaemon(machine_, {code, "no"}, false).advice, HasSubstr("a tierd without a configuration"));
  machine_.daemon_program.clear();
  EXPECT_THAT(WithoutDaemon(machine_, {Code::kDisconnected, "no"}, false).advice,
              ::testing::AllOf(HasSubstr("tierd is not on PATH"), HasSubstr("a tierd without a configuration")));
}

TEST_F(DoctorTest, WithoutHugePagesAMachineIsWell) {
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nHugePages_Total: 8\nHugePages_Free: 0\n");
  EXPECT_EQ(Find("huge pages").verdict, Verdict::kNote);
  // The default arena's 16 GiB, besides those in use.
  EXPECT_EQ(Find("huge pages").remedy, "echo 8200 > /proc/sys/vm/nr_hugepages");
  EXPECT_EQ(ExitCodeOf(Examine(machine_)), kExitOk);
}

TEST_F(DoctorTest, HugePagesAreCountedByTheArenaOfTheDaemonThatAnswers) {
  v1::NodeStatus status;
  status.set_huge_page_mode(v1::HUGE_PAGE_MODE_THP);
  status.set_arena_bytes(32 << 20);
  status.set_arena_max_bytes(128 << 20);
  const auto row = [&](const char* pool) {
    Write("/proc/meminfo", std::string("MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n") + pool);
    for (const Finding& finding : WithDaemon(Examine(machine_, &status), status, "/s")) {
      if (finding.check == "huge pages") return finding;
    }
    return Finding{};
  };
  EXPECT_EQ(row("HugePages_Total: 0\nHugePages_Free: 0\n").remedy, "echo 64 > /proc/sys/vm/nr_hugepages");
  EXPECT_EQ(row("HugePages_Total: 8\nHugePages_Free: 0\n").remedy, "echo 72 > /proc/sys/vm/nr_hugepages")
      << "others have them";
  status.set_huge_page_mode(v1::HUGE_PAGE_MODE_HUGETLB);
  const Finding some = row("HugePages_Total: 8\nHugePages_Free: 0\n");
  EXPECT_EQ(some.remedy, "echo 64 > /proc/sys/vm/nr_hugepages") << "tierd has them";
  EXPECT_THAT(some.found, HasSubstr("0 of 8 free: tierd has some"));
  status.set_arena_stock_bytes(96 << 20);
  const Finding all = row("HugePages_Total: 64\nHugePages_Free: 0\n");
  EXPECT_EQ(all.verdict, Verdict::kGood);
  EXPECT_EQ(all.found, "0 of 64 free: tierd's windows are in them");
  EXPECT_EQ(all.remedy + all.advice, "");
  EXPECT_EQ(row("HugePages_Total: 70\nHugePages_Free: 0\n").verdict, Verdict::kGood) << "6 for others";
  EXPECT_EQ(row("HugePages_Total: 70\nHugePages_Free: 2\n").found, "2 of 70 free");
}

TEST_F(DoctorTest, TheExitCodeIsThatOfTheWorst) {
  EXPECT_EQ(ExitCodeOf(Examine(machine_)), kExitOk);
  machine_.try_io_uring = [] { return EPERM; };
  EXPECT_EQ(ExitCodeOf(Examine(machine_)), kExitDegraded);
  machine_.writable = [](const std::string&) { return false; };
  EXPECT_EQ(ExitCodeOf(Examine(machine_)), kExitFailure);
}

TEST_F(DoctorTest, ADaemonThatRunsSaysItselfWhatItLacks) {
  LackEverything();
  v1::NodeStatus status;
  status.set_version("1");
  status.set_io_mode(v1::IO_MODE_IO_URING);
  status.set_memory_mode(v1::MEMORY_MODE_PINNED);
  const auto well = WithDaemon(Examine(machine_), status, "/run/tierd/admin.sock");
  EXPECT_EQ(ExitCodeOf(well), kExitOk);
  EXPECT_THAT(well.back().found, HasSubstr("1 on /run/tierd/admin.sock: I/O io_uring, memory pinned"));
  status.set_memory_mode(v1::MEMORY_MODE_UNPINNED);
  status.set_memory_mode_reason("RLIMIT_MEMLOCK is 8 MiB");
  status.add_degraded_by("memory is not pinned: RLIMIT_MEMLOCK is 8 MiB");  // As `tierctl status` shows it.
  const auto lacking = WithDaemon(Examine(machine_), status, "/s");
  EXPECT_EQ(ExitCodeOf(lacking), kExitDegraded);
  EXPECT_THAT(lacking.back().found, HasSubstr("memory is not pinned: RLIMIT_MEMLOCK is 8 MiB"));
}

// What a user may pin itself says nothing of a daemon of root.
TEST_F(DoctorTest, BesideADaemonItsModesDecideAndNotTheLimitsOfThisLogin) {
  const auto row = [this](const v1::NodeStatus& status, const char* check) {
    const std::vector<Finding> findings = WithDaemon(Examine(machine_), status, "/s");
    const auto found = std::ranges::find(findings, check, &Finding::check);
    return found == findings.end() ? Finding{} : *found;
  };
  LackEverything();
  v1::NodeStatus status;
  status.set_io_mode(v1::IO_MODE_IO_URING);
  status.set_memory_mode(v1::MEMORY_MODE_PINNED);
  EXPECT_EQ(row(status, "memlock").found, "the daemon's memory is pinned");
  EXPECT_EQ(row(status, "memlock").verdict, Verdict::kGood);
  EXPECT_EQ(row(status, "memlock").remedy + row(status, "memlock").advice, "");
  EXPECT_EQ(row(status, "io_uring").found, "the daemon's I/O runs on it");
  EXPECT_EQ(row(status, "io_uring").verdict, Verdict::kGood);
  EXPECT_THAT(row(status, "open files").found, HasSubstr("of a tierd that is started from this shell"));
  machine_.memlock_bytes = ~uint64_t{0};  // And the other way round.
  machine_.try_io_uring = [] { return 0; };
  status.set_io_mode(v1::IO_MODE_THREADS);
  status.set_memory_mode(v1::MEMORY_MODE_UNPINNED);
  status.set_memory_mode_reason("RLIMIT_MEMLOCK is 8 MiB");
  EXPECT_EQ(row(status, "memlock").found, "the daemon's memory is not pinned: RLIMIT_MEMLOCK is 8 MiB");
  EXPECT_EQ(row(status, "memlock").verdict, Verdict::kNote) << "the last row says whether that is a lack";
  EXPECT_THAT(row(status, "io_uring").found, HasSubstr("the daemon's I/O runs on a thread pool"));
}

TEST_F(DoctorTest, ADaemonThatWasNamedIsMissedAndOneThatWasNotIsStarted) {
  const Error absent{Code::kDisconnected, "no tierd answers"};
  EXPECT_EQ(WithoutDaemon(machine_, absent, false).verdict, Verdict::kNote);
  EXPECT_EQ(WithoutDaemon(machine_, absent, true).verdict, Verdict::kDegraded);
  EXPECT_EQ(WithoutDaemon(machine_, absent, false).remedy, "tierd");
  Write("/run/systemd/system/x", "");
  EXPECT_EQ(WithoutDaemon(machine_, absent, false).remedy, "tierd") << "no unit is installed";
  Write("/usr/lib/systemd/system/tierd.service", "");
  EXPECT_EQ(WithoutDaemon(machine_, absent, false).remedy, "systemctl start tierd");
  machine_.uid = 1000;
  EXPECT_EQ(WithoutDaemon(machine_, absent, false).remedy, "sudo systemctl start tierd");
  EXPECT_EQ(WithoutDaemon(machine_, {Code::kDenied, "no right"}, false).verdict, Verdict::kDegraded);
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
  EXPECT_THAT(Find("io_uring").advice, HasSubstr("seccomp"));
  Write("/proc/sys/kernel/io_uring_disabled", "2\n");
  EXPECT_EQ(Find("io_uring").remedy, "echo 0 > /proc/sys/kernel/io_uring_disabled");
}

TEST_F(DoctorTest, ChecksTheDiskByTheRuleForTheDefaultFile) {
  EXPECT_EQ(Find("disk").found, "500 GiB free for /var/lib/tierd: the default SSD file takes 64.0 GiB");
  SetFree(112 * kGiB);
  EXPECT_EQ(Find("disk").verdict, Verdict::kNote);
  EXPECT_THAT(Find("disk").found, HasSubstr("100 GiB must stay free: the default SSD file takes 12.0 GiB"));
  SetFree(100 * kGiB);
  EXPECT_EQ(Find("disk").verdict, Verdict::kDegraded);
  EXPECT_THAT(Find("disk").found, HasSubstr("no SSD tier, tensors stay in RAM"));
  EXPECT_THAT(Find("disk").advice, HasSubstr("daemon.data_directory"));
}

TEST_F(DoctorTest, AnSsdFileThatIsThereNeedsNoMoreRoom) {
  SetFree(0);
  Write("/var/lib/tierd/tier.ssd", std::string(4096, 'x'));
  EXPECT_EQ(Find("disk").verdict, Verdict::kGood);
  EXPECT_EQ(Find("disk").found, "/var/lib/tierd/tier.ssd is there with 4.00 KiB");
}

TEST_F(DoctorTest, ADaemonWithoutTheSsdTierItShouldHaveIsDegraded) {
  v1::NodeStatus status;
  status.set_ssd_mode(v1::SSD_MODE_NONE);
  EXPECT_EQ(WithDaemon({}, status, "/s").back().verdict, Verdict::kGood) << "it was configured so";
  status.set_ssd_mode_reason("the disk is full");
  status.add_degraded_by("no SSD tier, tensors stay in RAM: the disk is full");
  EXPECT_EQ(WithDaemon({}, status, "/s").back().verdict, Verdict::kDegraded);
  EXPECT_THAT(WithDaemon({}, status, "/s").back().found,
              HasSubstr("degraded: no SSD tier, tensors stay in RAM: the disk is full"));
}

TEST_F(DoctorTest, ADaemonThatIsDrainedIsNotWell) {
  v1::NodeStatus status;
  status.set_draining(true);
  EXPECT_EQ(WithDaemon({}, status, "/s").back().verdict, Verdict::kDegraded);
  EXPECT_THAT(WithDaemon({}, status, "/s").back().found, HasSubstr("draining: no new job or process is taken"));
}

TEST_F(DoctorTest, MissingFilesAreNoCrash) {
  machine_.root = root_ + "/absent";
  EXPECT_EQ(Find("memory").verdict, Verdict::kDegraded);
  EXPECT_EQ(Find("huge pages").verdict, Verdict::kNote);
  EXPECT_EQ(Find("huge pages").remedy, "");
}

}  // namespace
}  // namespace tier::tierctl
