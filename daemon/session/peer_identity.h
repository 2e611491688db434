// Who is at the other end of a Unix socket, by the kernel's word, and a pidfd that tells when that process ends.
//
// A client sends a pidfd of itself, which works across pid namespaces (where SO_PEERCRED says pid 0); without one the
// daemon opens it. A descriptor that is no pidfd, or that of another process, is refused. Any thread.
#pragma once

#include <sys/types.h>

#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

struct PeerIdentity {
  pid_t pid = 0;  // 0: in a pid namespace that cannot be seen from here.
  uid_t uid = 0;
  gid_t gid = 0;
};

// The credentials that connect() left in the kernel.
Result<PeerIdentity> IdentifyPeer(int socket);

// Checks a descriptor that a client sent as its own pidfd. INVALID otherwise.
Status CheckPidfd(int fd, const PeerIdentity& peer);

// A pidfd of the peer: from the socket where the kernel can (6.5), else by number. An empty descriptor where there is
// none to be had (pid 0): then only a hang-up tells of its death. NOT_FOUND: it has ended already.
Result<proto::FileDescriptor> OpenPeerPidfd(int socket, const PeerIdentity& peer);

}  // namespace tier::session
