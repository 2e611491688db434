// Signals that operators, terminals and log rotation send: only SIGTERM and SIGINT end a daemon.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crash/daemon/daemon_process.h"
#include "tests/support/session/data_client.h"

namespace tier::crash {
namespace {

using session::testing::DataClient;
using session::testing::MakeHello;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kNoticeMs = 60'000;
constexpr const char* kReloading = "RELOADING=1\n";

// The session is served as before: a create is granted.
bool IsServed(DataClient& client) {
  static uint64_t tensor = 0;
  const proto::RequestItem item = {.tensor = ++tensor, .offset = 0, .length = kBlockSize, .value = kBlockSize};
  if (!client.ring().Send(proto::Op::kCreate, {&item, 1}, 0)) return false;
  client.Ring();
  return client.WaitForCompletions(1).at(0).header.code == 0;
}

// A daemon with a configuration file, and a client that stays attached.
class Signals : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteConfig("[log]\nlevel = \"info\"\n");
    daemon_.emplace(scratch_,
                    DaemonOptions{.arguments = {"--config", path_}, .environment = {}, .uid = {}, .inherited = {}});
    ASSERT_TRUE(daemon_->WaitReady()) << daemon_->Output();
    client_.emplace(daemon_->socket());
    ASSERT_EQ(client_->Attach(MakeHello("train")).code, 0);
  }
  void WriteConfig(const std::string& text) { std::ofstream(path_) << text; }
  void SendSignal(int signal) { ASSERT_EQ(::kill(daemon_->pid(), signal), 0); }
  // SIGHUP, and what the service manager hears of it.
  void Reload() {
    SendSignal(SIGHUP);
    ASSERT_EQ(daemon_->NextNotice(kNoticeMs), kReloading) << daemon_->Output();
    ASSERT_EQ(daemon_->NextNotice(kNoticeMs), "READY=1\n") << daemon_->Output();
  }

  ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "tierd.toml";
  std::optional<DaemonProcess> daemon_;
  std::optional<DataClient> client_;
};

TEST_F(Signals, HangupReadsTheLogLevelAgainAndNamesWhatNeedsARestart) {
  WriteConfig("[log]\nlevel = \"error\"\n[ssd]\nqueue_depth = 7\nfile_size = \"3GiB\"\n[jobs]\nmax_sessions = 7\n");
  ASSERT_NO_FATAL_FAILURE(Reload());
  EXPECT_THAT(daemon_->Output(), HasSubstr("log.level is \"error\""));
  EXPECT_THAT(daemon_->Output(), HasSubstr("only after a restart: ssd.queue_depth\n"))
      << "and not ssd.file_size: the command line says that";
  EXPECT_THAT(daemon_->Output(), HasSubstr("jobs.max_sessions (1024 to 7), log.level (\"info\" to \"error\")"));
  const size_t said = daemon_->Output().size();
  WriteConfig("[log]\nlevel = \"error\"\n");
  ASSERT_NO_FATAL_FAILURE(Reload());
  EXPECT_EQ(daemon_->Output().size(), said) << "at level error nothing is to be said";
  WriteConfig("");
  ASSERT_NO_FATAL_FAILURE(Reload());
  EXPECT_THAT(daemon_->Output().substr(said), AllOf(HasSubstr("log.level is \"info\""), Not(HasSubstr("restart"))));
  EXPECT_TRUE(IsServed(*client_));
  EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Output();
}

TEST_F(Signals, HangupWithABrokenConfigurationChangesNothing) {
  WriteConfig("[log]\nlevel = \"loud\"\n");
  ASSERT_NO_FATAL_FAILURE(Reload());
  EXPECT_THAT(daemon_->Output(), AllOf(HasSubstr(path_ + ":2: option log.level"), HasSubstr("stay as they are")));
  EXPECT_TRUE(IsServed(*client_));
  EXPECT_THAT(daemon_->NextNotice(kNoticeMs).value_or("none"),
              AllOf(StartsWith("STATUS=serving at"), HasSubstr("the new configuration was refused, the log says why"),
                    Not(HasSubstr("log.level"))))
      << "every user may read it";
  WriteConfig("");
  ASSERT_NO_FATAL_FAILURE(Reload());
  EXPECT_THAT(daemon_->NextNotice(kNoticeMs).value_or("none"),
              AllOf(StartsWith("STATUS=serving at"), Not(HasSubstr("reload"))));
  EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Output();
  EXPECT_THAT(daemon_->Output(), HasSubstr("stopping")) << "the level is still info";
}

TEST_F(Signals, UserSignalsAreIgnoredWithALine) {
  SendSignal(SIGUSR1);
  ASSERT_TRUE(daemon_->WaitOutput("SIGUSR1 has no meaning for tierd and is ignored")) << daemon_->Output();
  SendSignal(SIGUSR2);
  ASSERT_TRUE(daemon_->WaitOutput("SIGUSR2 has no meaning for tierd and is ignored")) << daemon_->Output();
  EXPECT_TRUE(IsServed(*client_));
  EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Output();
}

TEST(Terminal, ClosedOneLeavesTheDaemonServing) {
  ScratchDirectory scratch;
  proto::FileDescriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal || ::grantpt(terminal.get()) != 0 || ::unlockpt(terminal.get()) != 0) GTEST_SKIP() << "needs a pty";
  proto::FileDescriptor other_side(::open(::ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  DaemonProcess daemon(scratch,
                       {.arguments = {}, .environment = {}, .uid = {}, .inherited = {}, .output = other_side.get()});
  other_side = {};
  ASSERT_TRUE(daemon.WaitReady());
  DataClient client(daemon.socket());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  terminal = {};  // The kernel sends SIGHUP; what the daemon writes from now on fails with EIO.
  ASSERT_EQ(daemon.NextNotice(kNoticeMs), kReloading);
  EXPECT_TRUE(IsServed(client));
  DataClient later(daemon.socket());
  EXPECT_EQ(later.Attach(MakeHello("another")).code, 0);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(Terminal, LogThatNobodyReadsLeavesTheDaemonServing) {
  ScratchDirectory scratch;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  proto::FileDescriptor reader(ends[0]);
  proto::FileDescriptor writer(ends[1]);
  DaemonProcess daemon(scratch,
                       {.arguments = {}, .environment = {}, .uid = {}, .inherited = {}, .output = writer.get()});
  writer = {};
  ASSERT_TRUE(daemon.WaitReady());
  reader = {};
  DataClient client(daemon.socket());  // Logged, to a pipe without a reader.
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  EXPECT_TRUE(IsServed(client));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tier::crash
