// Which control sockets a caller's words stand for.
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libclient/control/channel.h"
#include "proto/socket_places.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::control_client {
namespace {

using ::testing::ElementsAre;

TEST(ControlSockets, OneThatIsNamedStandsAlone) {
  const Sockets sockets = SocketCandidates("/run/other/admin.sock");
  EXPECT_THAT(sockets.paths, ElementsAre("/run/other/admin.sock"));
  EXPECT_TRUE(sockets.named);
}

TEST(ControlSockets, TheDataSocketStandsForTheOneBesideIt) {
  EXPECT_THAT(SocketCandidates("/run/other/tierd.sock").paths, ElementsAre("/run/other/control.sock"));
  EXPECT_THAT(SocketCandidates("tierd.sock").paths, ElementsAre("control.sock"));
  EXPECT_THAT(SocketCandidates("/run/not-tierd.sock").paths, ElementsAre("/run/not-tierd.sock"));
}

TEST(ControlSockets, TheEnvironmentNamesOneAsACallerDoes) {
  const session::testing::TemporaryDirectory folder;
  for (const auto& [named, meant] : {std::pair(folder.path(), folder.path() + "/control.sock"),
                                     std::pair(folder.path() + "/", folder.path() + "/control.sock"),
                                     std::pair(folder.path() + "/tierd.sock", folder.path() + "/control.sock"),
                                     std::pair(folder.path() + "/admin.sock", folder.path() + "/admin.sock")}) {
    EXPECT_THAT(SocketCandidates(named.c_str()).paths, ElementsAre(meant));
    ASSERT_EQ(::setenv("TIERD_SOCKET", named.c_str(), 1), 0);
    const Sockets sockets = SocketCandidates(nullptr);
    ASSERT_EQ(::unsetenv("TIERD_SOCKET"), 0);
    EXPECT_THAT(sockets.paths, ElementsAre(meant));
    EXPECT_TRUE(sockets.named);
  }
}

TEST(ControlSockets, WithoutANameAreLookedForWhereLibtierLooksForItsOwn) {
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
  const Sockets sockets = SocketCandidates(nullptr);
  ASSERT_EQ(::unsetenv("XDG_RUNTIME_DIR"), 0);
  EXPECT_THAT(sockets.paths,
              ElementsAre("/run/user/7/tierd/control.sock", proto::UserSocketDirectory(::geteuid()) + "/control.sock",
                          "/run/tierd/control.sock"));
  EXPECT_FALSE(sockets.named);
}

}  // namespace
}  // namespace tier::control_client
