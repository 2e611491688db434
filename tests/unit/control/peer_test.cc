#include "daemon/control/peer.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <numeric>
#include <thread>

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

// The kernel knows them: the user database, which may not answer, is not asked for each connection.
TEST(Peer, HasTheGroupsOfItsProcess) {
  std::vector<gid_t> groups(100);  // More than the first question has room for.
  std::iota(groups.begin(), groups.end(), gid_t{70'000});
  std::optional<Peer> peer;
  std::thread([&] {  // The system call changes this thread alone.
    if (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0) return;
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const proto::FileDescriptor a(fds[0]);
    const proto::FileDescriptor b(fds[1]);
    peer = PeerOf(a.get());
  })
      .join();
  if (!peer) GTEST_SKIP() << "needs CAP_SETGID: changes groups";
  EXPECT_EQ(peer->groups, groups);
}

TEST(Peer, OnlyRootTheDaemonAndItsGroupMayAdminister) {
  constexpr gid_t kAdmins = 999;
  EXPECT_TRUE(MayAdminister({.pid = 1, .uid = 0, .gid = 0, .groups = {}}, kAdmins));
  EXPECT_TRUE(MayAdminister({.pid = 1, .uid = ::geteuid(), .gid = 65534, .groups = {}}, std::nullopt));
  EXPECT_FALSE(MayAdminister({.pid = 1, .uid = 65534, .gid = 65534, .groups = {65534}}, std::nullopt));
  EXPECT_FALSE(MayAdminister({.pid = 1, .uid = 65534, .gid = 65534, .groups = {100, 65534}}, kAdmins));
  EXPECT_TRUE(MayAdminister({.pid = 1, .uid = 65534, .gid = kAdmins, .groups = {}}, kAdmins)) << "primary group";
  EXPECT_TRUE(MayAdminister({.pid = 1, .uid = 65534, .gid = 65534, .groups = {100, kAdmins}}, kAdmins));
}

}  // namespace
}  // namespace tier::control
