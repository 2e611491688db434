// Which servers make room for others.
#include "daemon/control/identity_servers.h"

#include <sys/socket.h>

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/control/fake_control_api.h"

namespace tier::control {
namespace {

class IdentityServersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { grpc::EnableDefaultHealthCheckService(true); }
  bool Connect(uint32_t uid, bool admin) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    clients_.emplace_back(pair[0]);
    proto::FileDescriptor served(pair[1]);
    const Status adopted = servers_.Adopt({.uid = uid, .admin = admin}, pair[1], &served);
    return adopted.has_value();
  }

  test::FakeControlApi api_;
  std::vector<proto::FileDescriptor> clients_;
  IdentityServers servers_{api_, 2};
};

// A client with many identities, as owners have, must not keep an administrator from the daemon.
TEST_F(IdentityServersTest, AnAdministratorMakesNoRoomForOthers) {
  ASSERT_TRUE(Connect(0, true));
  for (uint32_t uid = 1000; uid < 1005; ++uid) ASSERT_TRUE(Connect(uid, false)) << uid;
  EXPECT_EQ(servers_.count(), 3U) << "its server, and two of the others";
  ASSERT_TRUE(Connect(0, true));
  EXPECT_EQ(servers_.count(), 3U) << "it has the same";
  ASSERT_TRUE(Connect(0, false)) << "by the socket of all it is one of the others";
  EXPECT_EQ(servers_.count(), 3U);
}

TEST_F(IdentityServersTest, AdministratorsMakeRoomForEachOtherAlone) {
  ASSERT_TRUE(Connect(1000, false));
  for (uint32_t uid = 0; uid < 4; ++uid) ASSERT_TRUE(Connect(uid, true)) << uid;
  EXPECT_EQ(servers_.count(), 3U);
}

}  // namespace
}  // namespace tier::control
