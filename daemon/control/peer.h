// Who is at the other end of a Unix socket, as the kernel recorded it when the peer connected.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace tier::control {

struct Peer {
  pid_t pid = 0;  // 0: in a pid namespace that is not ours.
  uid_t uid = 0;
  gid_t gid = 0;
};

// Nothing if the descriptor is no connected Unix socket.
std::optional<Peer> PeerOf(int fd);
// root, the daemon's own user, or a member of `group` (primary or supplementary, as the user database says).
bool MayAdminister(const Peer& peer, const std::string& group);

}  // namespace tier::control
