// Who is at the other end of a Unix socket, as the kernel recorded it when the peer connected.
//
// Nothing here asks the user database, which may wait for a server of the network: the accept thread serves all.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

namespace tier::control {

struct Peer {
  pid_t pid = 0;  // 0: in a pid namespace that is not ours.
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // Supplementary ones of its process. Empty also with a kernel that does not say.
};

// Nothing if the descriptor is no connected Unix socket.
std::optional<Peer> PeerOf(int fd);
// root, the daemon's own user, or a process in the group `admins` (primary or supplementary); none: no group.
bool MayAdminister(const Peer& peer, std::optional<gid_t> admins);

}  // namespace tier::control
