// Which control sockets a caller's words stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libclient/control/channel.h"

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

}  // namespace
}  // namespace tier::control_client
