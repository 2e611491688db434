// Who is at the other end of a Unix socket, by the kernel's word, and a pidfd that tells when that process ends. The
// client is asked for neither. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

struct PeerIdentity {
  pid_t pid = 0;  // 0: in a pid namespace that cannot be seen from here.
  uid_t uid = 0;
  gid_t gid = 0;
  bool of_owners_socket = false;  // The uid is that of the socket's owner, not what the kernel says.
};

// The credentials that connect() left in the kernel.
Result<PeerIdentity> IdentifyPeer(int socket);

enum class PidfdSource : uint8_t {
  kSocket,  // SO_PEERPIDFD where the kernel has it (6.5), else as kNumber.
  kNumber,  // pidfd_open by the peer's process number: what a kernel before 6.5 leaves. For tests.
};

struct PeerPidfd {
  proto::FileDescriptor descriptor;  // Empty where none is to be had: then only a hang-up tells of the process's end.
  bool proven = true;  // False: opened by number, which may have become another process's since connect().
};

// NOT_FOUND: the process has ended already. NO_MEMORY: the daemon has no descriptor left.
Result<PeerPidfd> OpenPeerPidfd(int socket, const PeerIdentity& peer, PidfdSource source);

// Whether the process of a pidfd has ended.
bool HasEnded(int pidfd);

}  // namespace tier::session
