#include "daemon/control/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "proto/mapping.h"

namespace tier::control {
namespace {

TEST(Peer, IsThisProcessOnItsOwnSocketPair) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const proto::FileDescriptor a(fds[0]);
  const proto::FileDescriptor b(fds[1]);
  const auto peer = PeerOf(a.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::geteuid());
}

TEST(Peer, IsNobodyOnAFileOrAnUnconnectedSocket) {
  EXPECT_FALSE(PeerOf(-1));
  const proto::FileDescriptor alone(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(PeerOf(alone.get()));
}

TEST(Peer, OnlyRootTheDaemonAndItsGroupMayAdminister) {
  EXPECT_TRUE(MayAdminister(Peer{1, 0, 0}, "tierd"));
  EXPECT_TRUE(MayAdminister(Peer{1, ::geteuid(), 65534}, "no-such-group"));
  EXPECT_FALSE(MayAdminister(Peer{1, 65534, 65534}, "no-such-group"));
  EXPECT_FALSE(MayAdminister(Peer{1, 65534, 65534}, "root"));
  EXPECT_TRUE(MayAdminister(Peer{1, 65534, 0}, "root")) << "primary group";
  EXPECT_FALSE(MayAdminister(Peer{1, 4'000'000'000u, 4'000'000'000u}, "root")) << "a uid without an account";
}

}  // namespace
}  // namespace tier::control
