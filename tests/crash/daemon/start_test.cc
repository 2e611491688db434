// What a daemon says of itself at its start, and where it puts itself when nothing says where.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/socket_places.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"
#include "tests/support/session/data_client.h"

namespace tier::crash {
namespace {

using session::testing::DataClient;
using session::testing::MakeHello;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A user who logged in nowhere, as in a container. Root becomes one that no other test is.
class Homeless : public ::testing::Test {
 protected:
  Homeless() {
    if (::geteuid() == 0) user_ = 20'000 + static_cast<uid_t>(::getpid() % 40'000);
    directory_ = proto::UserSocketDirectory(user_.value_or(::geteuid()));
  }
  void SetUp() override {
    if (std::filesystem::exists(directory_)) GTEST_SKIP() << "needs " << directory_ << " for itself";
  }
  ~Homeless() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  DaemonOptions Options() const {
    return {.arguments = {"--set", "daemon.socket_directory=", "--set", "daemon.data_directory=", "--set",
                          "ssd.any_file_system=true", "--set", "metrics.listen=auto"},
            .environment = {{"XDG_RUNTIME_DIR", ""}, {"XDG_STATE_HOME", ""}, {"HOME", ""}, {"STATE_DIRECTORY", ""}},
            .uid = user_,
            .inherited = {}};
  }

  std::optional<uid_t> user_;
  std::string directory_;
};

TEST_F(Homeless, HasADaemonWhereItsClientsLook) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch, Options());
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.status(), HasSubstr("serving at " + directory_ + "/tierd.sock"));
  EXPECT_THAT(daemon.status(), AllOf(HasSubstr("metrics at 127.0.0.1:"), Not(HasSubstr(":9464"))))
      << "the port that Prometheus asks is the system's daemon's";
  struct stat about{};
  ASSERT_EQ(::stat(directory_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  DataClient client(directory_ + "/tierd.sock");
  EXPECT_EQ(client.Attach(MakeHello("train")).code, 0);
  DataClient other(directory_ + "/tierd.sock");
  proto::Hello named = MakeHello("kept");
  named.named = 1;
  EXPECT_EQ(other.Attach(named).code, static_cast<uint16_t>(Code::kDenied)) << "it has no place to keep a job";
  EXPECT_THAT(daemon.Output(), HasSubstr("nothing is kept"));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
}

TEST_F(Homeless, DoesNotUseADirectoryThatAnotherUserMade) {
  if (!user_) GTEST_SKIP() << "needs root: makes a directory of another user's";
  ASSERT_TRUE(std::filesystem::create_directory(directory_));
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch, Options());
  EXPECT_FALSE(daemon.WaitReady());
  EXPECT_EQ(daemon.Wait(), EX_CONFIG);
  EXPECT_THAT(daemon.Output(), AllOf(HasSubstr(directory_ + " belongs to uid 0"), HasSubstr("sudo rm -r"),
                                     HasSubstr("daemon.socket_directory")));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST(Start, IsToldWithItsConfigurationAndItsLimits) {
  ScratchDirectory scratch;
  const std::string path = scratch / "tierd.toml";
  std::ofstream(path) << "[log]\nlevel = \"info\"\n";
  DaemonProcess daemon(scratch, {.arguments = {"--config", path}, .environment = {}, .uid = {}, .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.Output(), HasSubstr("started as uid " + std::to_string(::geteuid()) + " with configuration " +
                                         path + "; may lock "));
}

TEST(Start, IsPinnedOnlyWhereAllOfTheArenaCanBe) {
  ScratchDirectory scratch;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (::geteuid() != 0 || limit.rlim_cur >= 64 * kMiB) GTEST_SKIP() << "needs root, and a limit below the arena";
  std::filesystem::create_directory(scratch / "home");
  ASSERT_EQ(::chown((scratch / "home").c_str(), 12345, 12345), 0);
  DaemonProcess daemon(scratch, {.arguments = {"--set", "daemon.socket_directory=" + scratch / "home/run", "--set",
                                               "daemon.data_directory=" + scratch / "home/data"},
                                 .environment = {},
                                 .uid = 12345,
                                 .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  EXPECT_THAT(daemon.status(), HasSubstr("memory unpinned")) << "before there is a window";
  EXPECT_THAT(daemon.Output(), AllOf(HasSubstr("warning memory mode unpinned: "), HasSubstr("RLIMIT_MEMLOCK is ")));
}

TEST(Start, AtLevelDebugSaysWhatItDoes) {
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch,
                       {.arguments = {"--set", "log.level=debug"}, .environment = {}, .uid = {}, .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  Trainer trainer(daemon, "train");
  ASSERT_EQ(trainer.Put(1, 8 * kMiB, 1).header.code, 0);
  ASSERT_EQ(trainer.Ask(proto::Op::kFlush, {.tensor = 1}).header.code, 0);
  EXPECT_TRUE(daemon.WaitOutput("debug windows: ")) << daemon.Output();
  EXPECT_TRUE(daemon.WaitOutput("debug requests: answered ")) << daemon.Output();
  EXPECT_TRUE(daemon.WaitOutput("debug device 0: read ")) << daemon.Output();
}

}  // namespace
}  // namespace tier::crash
