#include "daemon/session/peer_identity.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; not in the headers of 6.1.
#endif

namespace tier::session {
namespace {

Result<PeerPidfd> Opened(int fd, bool proven) {
  if (fd >= 0) return PeerPidfd{proto::FileDescriptor(fd), proven};
  if (errno == ESRCH || errno == EINVAL) return Fail(Code::kNotFound, "the client's process has ended");
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    return Fail(Code::kNoMemory, fmt::format("no descriptor left for a session: {}", std::strerror(errno)));
  }
  return PeerPidfd{};  // A sandbox forbids it, or the process is not visible here.
}

}  // namespace

Result<PeerIdentity> IdentifyPeer(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || size != sizeof(credentials)) {
    return Fail(Code::kDenied, fmt::format("the kernel does not say who connects: {}", std::strerror(errno)));
  }
  return PeerIdentity{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

Result<PeerPidfd> OpenPeerPidfd(int socket, const PeerIdentity& peer, PidfdSource source) {
  if (source == PidfdSource::kSocket) {
    int fd = -1;
    socklen_t size = sizeof(fd);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return Opened(fd, true);
    if (errno != ENOPROTOOPT) return Opened(-1, true);
  }
  if (peer.pid == 0) return PeerPidfd{};
  return Opened(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)), false);
}

bool HasEnded(int pidfd) {
  pollfd about = {.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&about, 1, 0) != 0;
}

}  // namespace tier::session
