// Where a daemon puts its sockets and its data, by configuration and environment.
#include "daemon/daemon_paths.h"

#include <unistd.h>

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/scratch.h"

namespace tier {
namespace {

using ::testing::HasSubstr;

DaemonEnvironment Environment(uint32_t uid, std::map<std::string, std::string> variables, const std::string& owned = {},
                              bool writable = true) {
  return {.uid = uid,
          .variable = [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            return found == variables.end() ? std::nullopt : std::optional(found->second);
          },
          .owns = [owned](const char* directory) { return directory == owned; },
          .may_write = [writable](const std::string&) { return writable; }};
}

config::DaemonConfig Shared() { return config::DefaultConfig().daemon; }

config::DaemonConfig Private() {
  config::DaemonConfig config = Shared();
  config.is_private = true;
  return config;
}

std::string DataDirectory(const config::DaemonConfig& config, const DaemonEnvironment& environment) {
  const auto paths = ChoosePaths(config, environment);
  return paths ? paths->data_directory : paths.error().message;
}

TEST(DaemonPaths, AUsersDataIsInItsStateDirectory) {
  EXPECT_EQ(DataDirectory(Shared(), Environment(7, {{"HOME", "/h"}})), "/h/.local/state/tierd");
  EXPECT_EQ(DataDirectory(Shared(), Environment(7, {{"HOME", "/h"}, {"XDG_STATE_HOME", "/x"}})), "/x/tierd");
  EXPECT_EQ(DataDirectory(Private(), Environment(7, {{"HOME", "/h"}})), "/h/.local/state/tierd");
  EXPECT_EQ(DataDirectory(Shared(), Environment(7, {{"STATE_DIRECTORY", "/s/one:/s/two"}})), "/s/one");
}

TEST(DaemonPaths, RootsSharedDaemonHasTheSystemsDirectoryAndItsPrivateOneMayHaveAnother) {
  const DaemonEnvironment root = Environment(0, {{"HOME", "/root"}, {"XDG_STATE_HOME", "/x"}});
  EXPECT_EQ(DataDirectory(Shared(), root), "/var/lib/tierd");
  EXPECT_EQ(DataDirectory(Private(), root), "/x/tierd");
  EXPECT_EQ(DataDirectory(Private(), Environment(0, {{"HOME", "/root"}})), "/var/lib/tierd");
}

TEST(DaemonPaths, WithoutAHomeADaemonKeepsNothing) {
  for (const config::DaemonConfig& config : {Private(), Shared()}) {
    const auto paths = ChoosePaths(config, Environment(7, {}));
    ASSERT_TRUE(paths);
    EXPECT_EQ(paths->data_directory, "/var/tmp");
    EXPECT_FALSE(paths->persistent);
  }
  EXPECT_TRUE(ChoosePaths(Shared(), Environment(7, {{"HOME", "/h"}}))->persistent);
  EXPECT_TRUE(ChoosePaths(Shared(), Environment(0, {}))->persistent) << "root has /var/lib/tierd";
}

TEST(DaemonPaths, APrivateDaemonNeedsNoHomeThatItMayWrite) {
  const DaemonEnvironment games = Environment(5, {{"HOME", "/usr/games"}}, "", false);
  EXPECT_EQ(DataDirectory(Private(), games), "/var/tmp");
  EXPECT_EQ(DataDirectory(Shared(), games), "/usr/games/.local/state/tierd") << "what it keeps must stay";
  EXPECT_EQ(DataDirectory(Private(), Environment(5, {{"HOME", "/h"}, {"XDG_STATE_HOME", "/x"}}, "", false)), "/x/tierd")
      << "a place that was named is used or refused";
}

TEST(DaemonPaths, WhatMayBeWrittenIsDecidedByTheNearestDirectoryThatIsThere) {
  const DaemonEnvironment process = DaemonEnvironment::OfProcess();
  const storage::testing::ScratchDirectory scratch;
  EXPECT_TRUE(process.may_write(scratch.File("not/yet")));
  std::ofstream(scratch.File("file")) << "x";
  EXPECT_FALSE(process.may_write(scratch.File("file/below")));
  EXPECT_FALSE(process.may_write("relative"));
  const uid_t user = ::geteuid();
  ASSERT_EQ(::seteuid(user == 0 ? 12345 : user), 0);  // Root may write everywhere.
  const bool allowed = process.may_write("/usr/games/.local/state/tierd");
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_FALSE(allowed);
}

std::string SocketDirectory(const DaemonEnvironment& environment) {
  return ChoosePaths(Shared(), environment)->socket_directory;
}

TEST(DaemonPaths, SocketsLieWhereClientsOfTheSameUserLook) {
  EXPECT_EQ(SocketDirectory(Environment(7, {{"XDG_RUNTIME_DIR", "/r"}})), "/r/tierd");
  EXPECT_EQ(SocketDirectory(Environment(7, {})), "/tmp/tierd-7");
  EXPECT_EQ(SocketDirectory(Environment(0, {})), "/run/tierd");
  EXPECT_EQ(SocketDirectory(Environment(7, {}, "/run/tierd")), "/run/tierd") << "the service's user, or a container's";
}

std::string MetricsAddress(const std::string& listen, const std::string& sockets, bool is_private = false) {
  config::Config config = config::DefaultConfig();
  config.metrics.listen = listen;
  config.daemon.is_private = is_private;
  return ChooseMetricsAddress(config, {.socket_directory = sockets, .data_directory = {}});
}

TEST(DaemonPaths, OnlyTheSystemsDaemonTakesTheMetricsPortThatPrometheusAsks) {
  EXPECT_EQ(MetricsAddress("auto", "/run/tierd"), "127.0.0.1:9464");
  EXPECT_EQ(MetricsAddress("auto", "/run//tierd/"), "127.0.0.1:9464");
  EXPECT_EQ(MetricsAddress("auto", "/run/user/7/tierd"), "127.0.0.1:0");
  EXPECT_EQ(MetricsAddress("auto", "/run/tierd-private"), "127.0.0.1:0");
  EXPECT_EQ(MetricsAddress("auto", "/run/tierd", true), "") << "a private one listens on no port";
}

TEST(DaemonPaths, AnAddressThatWasConfiguredIsTakenAsItIs) {
  EXPECT_EQ(MetricsAddress("10.0.0.1:9", "/tmp/tierd-7"), "10.0.0.1:9");
  EXPECT_EQ(MetricsAddress("", "/run/tierd"), "");
}

TEST(DaemonPaths, APrivateDaemonKeepsTensorsWhereItWasTold) {
  EXPECT_FALSE(ChoosePaths(Private(), Environment(7, {}))->persistent);
  config::DaemonConfig config = Private();
  config.data_directory = "/d";
  const auto paths = ChoosePaths(config, Environment(7, {}));
  EXPECT_TRUE(paths->persistent);
  EXPECT_EQ(paths->data_directory, "/d");
  config.data_directory = "relative";
  EXPECT_THAT(DataDirectory(config, Environment(7, {})), HasSubstr("'relative' is not an absolute path"));
}

TEST(DaemonPaths, ADirectoryWhoseSocketsHaveTooLongPathsIsRefused) {
  config::DaemonConfig config = Shared();
  config.socket_directory = "/" + std::string(107 - std::string("//control.sock").size(), 'x');
  EXPECT_TRUE(ChoosePaths(config, Environment(7, {})));
  config.socket_directory += "x";
  const auto refused = ChoosePaths(config, Environment(7, {}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("has 108 characters, at most 107 are allowed"));
  EXPECT_THAT(refused.error().message, HasSubstr("daemon.socket_directory"));
}

}  // namespace
}  // namespace tier
