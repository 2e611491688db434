// Where a daemon puts its sockets and its data, by configuration and environment.
#include "daemon/daemon_paths.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DaemonEnvironment Environment(uint32_t uid, std::map<std::string, std::string> variables) {
  return {.uid = uid, .variable = [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            return found == variables.end() ? std::nullopt : std::optional(found->second);
          }};
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

TEST(DaemonPaths, WithoutAHomeOnlyAPrivateDaemonHasAPlace) {
  EXPECT_EQ(DataDirectory(Private(), Environment(7, {})), "/var/tmp");
  EXPECT_THAT(DataDirectory(Shared(), Environment(7, {})),
              AllOf(HasSubstr("neither XDG_STATE_HOME nor HOME is set"), HasSubstr("set daemon.data_directory")));
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

}  // namespace
}  // namespace tier
