#include "daemon/control/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tier::control {
namespace {

constexpr socklen_t kGroupsFirst = 64;
constexpr socklen_t kGroupsMax = 65536;  // NGROUPS_MAX of Linux.

std::vector<gid_t> GroupsOf(int fd) {
  std::vector<gid_t> groups(kGroupsFirst);
  socklen_t bytes = kGroupsFirst * sizeof(gid_t);
  // Where there are more, the kernel says how many bytes they take.
  while (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) {
    if (errno != ERANGE || bytes <= groups.size() * sizeof(gid_t) || bytes > kGroupsMax * sizeof(gid_t)) return {};
    groups.resize(bytes / sizeof(gid_t));
  }
  groups.resize(bytes / sizeof(gid_t));
  return groups;
}

}  // namespace

std::optional<Peer> PeerOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || size != sizeof(credentials))
    return std::nullopt;
  // An unconnected socket answers with uid -1.
  if (credentials.uid == static_cast<uid_t>(-1)) return std::nullopt;
  return Peer{credentials.pid, credentials.uid, credentials.gid, GroupsOf(fd)};
}

bool MayAdminister(const Peer& peer, std::optional<gid_t> admins) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  return admins && (peer.gid == *admins || std::ranges::find(peer.groups, *admins) != peer.groups.end());
}

}  // namespace tier::control
