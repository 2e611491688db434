// The program itself: starting, refusing to start, serving a client with the real engine, being killed, stopping.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/check.h"
#include "daemon/session/packet_socket.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"
#include "tests/support/session/data_client.h"

namespace tier::crash {
namespace {

using proto::Op;
using proto::PacketKind;
using session::testing::DataClient;
using session::testing::IncomingPacket;
using session::testing::MakeHello;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

uint16_t CodeOf(Code code) { return static_cast<uint16_t>(code); }

TEST(Daemon, StartsSaysWhereItServesAndStopsInOrder) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.status(), AllOf(HasSubstr("tierd.sock"), HasSubstr("64 MiB")));
  struct stat status{};
  ASSERT_EQ(::stat(daemon.socket().c_str(), &status), 0);
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(daemon.Stop(SIGTERM), 0) << daemon.Output();
  EXPECT_NE(::stat((scratch / "run/tierd.sock").c_str(), &status), 0);
  EXPECT_THAT(daemon.Output(), HasSubstr("stopped"));
}

TEST(Daemon, StartsWithNothingButARuntimeDirectory) {
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "xdg");
  // SmallDaemon's socket directory is taken back: the environment decides.
  DaemonProcess daemon(scratch, {.arguments = {"--set", "daemon.socket_directory="},
                                 .environment = {{"XDG_RUNTIME_DIR", scratch / "xdg"}},
                                 .uid = {},
                                 .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  DataClient client(scratch / "xdg/tierd/tierd.sock");
  const auto welcome = client.Attach(MakeHello("train"));
  EXPECT_EQ(welcome.code, 0);
  EXPECT_EQ(welcome.request_timeout_ms, 60'000u) << "what clients wait for";
}

TEST(Daemon, RootsOneForEverybodyWarnsOfADirectoryThatAPrivateOneLeftClosed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: only its daemon is for every user";
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "run");
  std::filesystem::permissions(scratch / "run", std::filesystem::perms::owner_all);
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.Output(), HasSubstr("chmod 755 " + scratch / "run"));
}

TEST(Daemon, TensorsGoOutToSsdAndComeBack) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  Trainer trainer(daemon, "train");
  ASSERT_EQ(trainer.welcome().code, 0) << trainer.welcome().message;
  // 96 MiB through an arena of 64.
  for (unsigned char i = 1; i <= 12; ++i) {
    const auto sealed = trainer.Put(i, 8 * kMiB, i);
    ASSERT_EQ(sealed.header.code, 0) << int{i} << ": " << sealed.detail;
  }
  for (unsigned char i = 1; i <= 12; ++i) EXPECT_TRUE(trainer.Holds(i, i)) << int{i};
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(Daemon, WhatIsWrittenOutOfPunchedWindowsIsLostToTheirOwnerAlone) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  Trainer neighbour(daemon, "neighbour");
  Trainer hostile(daemon, "hostile");
  ASSERT_EQ(neighbour.Put(1, 8 * kMiB, 1).header.code, 0);
  ASSERT_EQ(hostile.Put(1, 8 * kMiB, 2).header.code, 0);
  hostile.PunchWindows();
  for (Trainer* trainer : {&neighbour, &hostile}) {
    EXPECT_EQ(trainer->Ask(Op::kFlush, {.tensor = 1}).header.code, 0);
    EXPECT_EQ(trainer->Ask(Op::kDrop, {.tensor = 1}).header.code, 0);
  }
  const auto read = hostile.Ask(Op::kAcquire, {.tensor = 1});
  if (read.header.code != 0) {  // Else its windows are not registered, and their zeros were written.
    EXPECT_EQ(read.header.code, CodeOf(Code::kCorrupt)) << read.detail;
    EXPECT_THAT(read.detail, AllOf(HasSubstr("tensor 0x1 at byte"), HasSubstr("took away the memory")));
  }
  EXPECT_TRUE(neighbour.Holds(1, 1));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
}

TEST(Daemon, WhatAKilledClientHeldIsAllocatableAgain) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  // The victim holds nearly all of the arena under write leases.
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t victim = ::fork();
  if (victim == 0) {
    Trainer trainer(daemon, "victim");
    for (uint64_t i = 1; i <= 7; ++i) {
      (void)trainer.Ask(Op::kCreate, {.tensor = i, .offset = 0, .length = 8 * kMiB, .value = 8 * kMiB});
    }
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Trainer heir(daemon, "heir");
  ASSERT_EQ(heir.welcome().code, 0) << heir.welcome().message;
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
  // Or the request waits, and is refused at its deadline. How long it takes is measured by tools/dev bench.
  const auto created = heir.Ask(Op::kCreate, {.tensor = 1, .offset = 0, .length = 40 * kMiB, .value = 40 * kMiB});
  EXPECT_EQ(created.header.code, 0) << created.detail;
}

TEST(Daemon, ClientIsToldWhenItStops) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  DataClient silent(daemon.socket());
  DataClient client(daemon.socket());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0) << "and the one before it was accepted";
  ::kill(daemon.pid(), SIGTERM);
  const auto refusal = silent.Receive();
  ASSERT_FALSE(refusal.closed) << "it is not waited for, and told why";
  EXPECT_EQ(refusal.As<proto::Welcome>().code, CodeOf(Code::kDisconnected));
  const IncomingPacket packet = client.Receive();
  ASSERT_EQ(packet.kind(), PacketKind::kSessionEnd);
  EXPECT_EQ(packet.As<proto::SessionEnd>().code, CodeOf(Code::kDisconnected));
  EXPECT_TRUE(client.Receive().closed);
  EXPECT_EQ(daemon.Wait(), 0) << daemon.Output();
}

TEST(Daemon, KilledDaemonHangsUpAndTheNextOneStartsInItsPlace) {
  ScratchDirectory scratch;
  uint64_t epoch = 0;
  {
    DaemonProcess daemon(scratch);
    ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
    DataClient client(daemon.socket());
    epoch = client.Attach(MakeHello("train")).epoch;
    EXPECT_EQ(daemon.Stop(SIGKILL), -SIGKILL);
    EXPECT_TRUE(client.Receive().closed);
  }
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  DataClient client(daemon.socket());
  EXPECT_NE(client.Attach(MakeHello("train")).epoch, epoch);
}

TEST(Daemon, SecondInstanceInOneDirectoryIsRefusedNamingTheFirst) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  const auto second = RunTierd(scratch, SmallDaemon(scratch));
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("process " + std::to_string(daemon.pid())));
  DataClient client(daemon.socket());
  EXPECT_EQ(client.Attach(MakeHello("train")).code, 0) << "the first one keeps its socket";
}

TEST(Daemon, SecondInstanceOnOneDeviceIsRefused) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "daemon.socket_directory=" + scratch / "run2"});
  const auto second = RunTierd(scratch, arguments);
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("tier.ssd"));
}

TEST(Daemon, DeviceWithForeignContentIsLeftUntouched) {
  ScratchDirectory scratch;
  const std::string device = scratch / "photos.img";
  std::string content(128 * kMiB, '\0');
  std::memcpy(content.data() + 3 * kPageSize, "somebody's file system", 22);
  std::ofstream(device, std::ios::binary) << content;
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "ssd.devices=[\"" + device + "\"]", "--set", "ssd.file_size=0"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, HasSubstr(device));
  std::string after(content.size(), '\1');
  std::ifstream(device, std::ios::binary).read(after.data(), static_cast<std::streamsize>(after.size()));
  EXPECT_TRUE(after == content);
}

TEST(Daemon, ArenaLargerThanTheMachineIsRefusedWithFigures) {
  ScratchDirectory scratch;
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "arena.maximum=900TiB"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("lower arena.maximum"), Not(HasSubstr("configuration"))));
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

TEST(Daemon, WhatTheMachineRefusesIsSaidWithTheFileThatTheOptionStandsIn) {
  ScratchDirectory scratch;
  const std::string path = scratch / "tierd.toml";
  std::ofstream(path) << "[log]\nlevel = \"info\"\n";
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--config", path, "--set", "arena.maximum=900TiB"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("arena.maximum"), HasSubstr("(the configuration is " + path + ")")));
}

TEST(Daemon, HugePagesAlwaysIsRefusedAtTheStartWhereThereAreNone) {
  uint64_t free = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> free;
  if (free != 0) GTEST_SKIP() << "needs a machine without free huge pages";
  ScratchDirectory scratch;
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "arena.huge_pages=always"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("arena.huge_pages"), HasSubstr("vm.nr_hugepages")));
}

TEST(Daemon, ANumaNodeWithoutMemoryIsRefusedAtTheStart) {
  if (!std::filesystem::exists("/sys/devices/system/node/has_memory")) {
    GTEST_SKIP() << "needs NUMA nodes in sysfs";
  }
  ScratchDirectory scratch;
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--set", "arena.numa_node=500"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, HasSubstr("arena.numa_node is 500, and this host has memory at node"));
}

TEST(Daemon, PrivateOneListensOnNoPortKeepsNoFileAndEndsWithItsStarter) {
  ScratchDirectory scratch;
  // A starter that is gone already: with no session attached the daemon ends 30 s later, with one that has left
  // after 5.
  DaemonProcess daemon(
      scratch, {.arguments = {"--private", "--set", "daemon.data_directory=", "--set", "metrics.listen=127.0.0.1:9464"},
                .environment = {{"XDG_STATE_HOME", scratch / "state"}, {"STATE_DIRECTORY", scratch / "state/tierd"}},
                .uid = {},
                .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.status(), HasSubstr("no metrics"));
  struct stat status{};
  ASSERT_EQ(::stat(daemon.socket().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "state/tierd")) << "the SSD file has no name";
  {
    DataClient client(daemon.socket());
    proto::Hello named = MakeHello("train");
    named.named = 1;
    const auto refusal = client.Attach(named);
    EXPECT_EQ(refusal.code, CodeOf(Code::kDenied));
    EXPECT_THAT(refusal.message, HasSubstr("set daemon.data_directory"));
    DataClient plain(daemon.socket());
    EXPECT_EQ(plain.Attach(MakeHello("train")).code, 0);
  }
  EXPECT_EQ(daemon.Wait(), 0) << daemon.Output();
  EXPECT_THAT(daemon.Output(), HasSubstr("nobody needs"));
}

TEST(Daemon, RefusalOfAPrivateOneDoesNotNameTheFileThatItsStarterWrites) {
  ScratchDirectory scratch;
  const std::string path = scratch / "tierd.toml";
  std::ofstream(path) << "[daemon]\nprivate = true\nstarter_pid = " << ::getpid() << "\n";
  auto arguments = SmallDaemon(scratch);
  arguments.insert(arguments.end(), {"--config", path, "--set", "arena.maximum=900TiB"});
  const auto outcome = RunTierd(scratch, arguments);
  EXPECT_EQ(outcome.status, EX_CONFIG);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("arena.maximum"), Not(HasSubstr(path))));
}

TEST(Daemon, TakesTheDataSocketThatTheServiceManagerOpened) {
  ScratchDirectory scratch;
  const std::string path = scratch / "activated.sock";
  const auto listening = session::ListenAt(path, 0600).value();
  DaemonProcess daemon(scratch, {.arguments = {},
                                 .environment = {{"LISTEN_FDS", "1"}, {"LISTEN_FDNAMES", "data"}},
                                 .uid = {},
                                 .inherited = {listening.get()}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  DataClient client(path);
  EXPECT_EQ(client.Attach(MakeHello("train")).code, 0);
  EXPECT_EQ(daemon.Stop(), 0);
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << "it is not ours to remove";
}

TEST(Daemon, FeedsTheWatchdogAndSaysThatItStops) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch,
                       {.arguments = {}, .environment = {{"WATCHDOG_USEC", "30000"}}, .uid = {}, .inherited = {}});
  int fed = 0;
  bool ready = false;
  while (fed < 5) {
    const auto notice = daemon.NextNotice(20'000);
    ASSERT_TRUE(notice) << daemon.Output();
    fed += *notice == "WATCHDOG=1\n" ? 1 : 0;
    ready |= notice->starts_with("READY=1\n");
  }
  EXPECT_TRUE(ready);
  ::kill(daemon.pid(), SIGTERM);
  bool stopping = false;
  while (const auto notice = daemon.NextNotice(20'000)) stopping |= notice->starts_with("STOPPING=1\n");
  EXPECT_TRUE(stopping);
  EXPECT_EQ(daemon.Wait(), 0);
}

// TimeoutStopSec= of the unit is shorter than what the option may be.
TEST(Daemon, AsksForTheTimeThatItsStopMayTake) {
  ScratchDirectory scratch;
  DaemonProcess daemon(
      scratch, {.arguments = {"--set", "engine.drain_timeout=10min"}, .environment = {}, .uid = {}, .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  ::kill(daemon.pid(), SIGTERM);
  std::string stopping;
  while (const auto notice = daemon.NextNotice(20'000)) {
    if (notice->starts_with("STOPPING=1\n")) stopping = *notice;
  }
  EXPECT_NE(stopping.find("\nEXTEND_TIMEOUT_USEC=610000000\n"), std::string::npos) << stopping;
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST(Daemon, SaysHowFarAPrefaultIs) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch,
                       {.arguments = {"--set", "arena.prefault=true"}, .environment = {}, .uid = {}, .inherited = {}});
  bool ready = false;
  std::string told;
  while (told.find("prefault is complete") == std::string::npos) {
    const auto notice = daemon.NextNotice(20'000);
    ASSERT_TRUE(notice) << daemon.Output();
    ready |= notice->starts_with("READY=1\n");
    if (notice->find("prefault") != std::string::npos) told = *notice;
  }
  EXPECT_TRUE(ready);
  EXPECT_TRUE(told.starts_with("STATUS=serving at ")) << told;
  const auto logged = [&] { return daemon.Output().find("prefault is complete") != std::string::npos; };
  for (int wait = 0; wait < 200 && !logged(); ++wait) (void)daemon.NextNotice(100);  // The engine tells once a second.
  EXPECT_TRUE(logged()) << daemon.Output();
}

TEST(Daemon, MetricsPortIsWrittenDown) {
  ScratchDirectory scratch;
  DaemonProcess daemon(
      scratch, {.arguments = {"--set", "metrics.listen=127.0.0.1:0"}, .environment = {}, .uid = {}, .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  int port = 0;
  std::ifstream(scratch / "run/metrics.port") >> port;
  EXPECT_GT(port, 0);
  EXPECT_THAT(daemon.status(), HasSubstr("metrics at 127.0.0.1:" + std::to_string(port)));
  EXPECT_EQ(daemon.Stop(), 0);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/metrics.port"));
}

TEST(Daemon, RunsWithoutRootAtAnOrdinaryLimitOfLockedMemory) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become somebody else";
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "home");
  ASSERT_EQ(::chown((scratch / "home").c_str(), 12345, 12345), 0);
  DaemonProcess daemon(scratch, {.arguments = {"--set", "daemon.socket_directory=" + scratch / "home/run", "--set",
                                               "daemon.data_directory=" + scratch / "home/data"},
                                 .environment = {},
                                 .uid = 12345,
                                 .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.status(), AllOf(HasSubstr("serving at"), HasSubstr("home/run")));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
}

TEST(Daemon, NobodyButRootReadsItsMemory) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become somebody else";
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch);
  ASSERT_TRUE(daemon.WaitReady());
  struct stat status{};
  ASSERT_EQ(::stat(("/proc/" + std::to_string(daemon.pid()) + "/mem").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u);
}

TEST(CommandLine, ChecksConfigurations) {
  ScratchDirectory scratch;
  const std::string path = scratch / "tierd.toml";
  const auto check = [&scratch](const std::string& file) {
    // The file of the SSD tier would be on this host's disk.
    return RunTierd(scratch, {"--check-config", "--config", file, "--set", "ssd.devices=[\"none\"]"});
  };
  std::ofstream(path) << "[arena]\nmaximum = \"1GiB\"\n";
  EXPECT_EQ(check(path).status, 0);
  std::ofstream(path) << "[arena]\nmaximun = \"1GiB\"\n";
  const auto wrong = check(path);
  EXPECT_EQ(wrong.status, EX_CONFIG);
  EXPECT_THAT(wrong.output, AllOf(HasSubstr(path + ":2:"), HasSubstr("arena.maximum")));
  EXPECT_EQ(check(scratch / "none.toml").status, EX_CONFIG);
  std::ofstream(path) << "[quota.user.no-such-user]\nram = \"1GiB\"\n[quota.user.root]\njobs = 4\n";
  const auto unknown = check(path);
  EXPECT_EQ(unknown.status, 0);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("warning: this system does not know who quota.user.no-such-user is"),
                                    Not(HasSubstr("quota.user.root"))));
  // What only this host refuses.
  std::ofstream(path) << "[arena]\nmaximum = \"1GiB\"\nminimum = \"200GiB\"\n";
  const auto large = check(path);
  EXPECT_EQ(large.status, EX_CONFIG);
  EXPECT_THAT(large.output, HasSubstr("arena.minimum"));
}

TEST(CommandLine, PrintsADefaultConfigurationThatItAccepts) {
  ScratchDirectory scratch;
  const auto printed = RunTierd(scratch, {"--print-default-config"});
  EXPECT_EQ(printed.status, 0);
  std::ofstream(scratch / "tierd.toml") << printed.output;
  EXPECT_EQ(RunTierd(scratch, {"--check-config", "--config", scratch / "tierd.toml", "--set", "ssd.devices=[\"none\"]"})
                .status,
            0);
}

TEST(CommandLine, SaysItsVersionAndRefusesWhatItDoesNotKnow) {
  ScratchDirectory scratch;
  EXPECT_THAT(RunTierd(scratch, {"--version"}).output, HasSubstr("tierd 0."));
  EXPECT_EQ(RunTierd(scratch, {"--help"}).status, 0);
  EXPECT_EQ(RunTierd(scratch, {"--nonsense"}).status, 2);
  EXPECT_EQ(RunTierd(scratch, {"--set", "arena.maximum"}).status, EX_CONFIG);
}

}  // namespace
}  // namespace tier::crash
