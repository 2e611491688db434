// Which control sockets a caller's words stand for.
#include <unistd.h>

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libclient/control/channel.h"
#include "proto/socket_places.h"

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
