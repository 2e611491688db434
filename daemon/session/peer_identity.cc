#include "daemon/session/peer_identity.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; not in the headers of 6.1.
#endif

namespace tier::session {
namespace {

// The line "Pid:" of /proc/self/fdinfo/<fd>: only pidfds have one. -1: the process has ended; 0: not visible here.
std::optional<pid_t> PidOfPidfd(int fd, bool* readable) {
  std::ifstream file(fmt::format("/proc/self/fdinfo/{}", fd));
  *readable = file.good();
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pid:")) return static_cast<pid_t>(std::strtol(line.c_str() + 4, nullptr, 10));
  }
  return std::nullopt;
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

Status CheckPidfd(int fd, const PeerIdentity& peer) {
  // Signal 0 only checks; EBADF says that this is no pidfd, EPERM that it is one.
  if (::syscall(SYS_pidfd_send_signal, fd, 0, nullptr, 0) != 0 && errno == EBADF) {
    return Fail(Code::kInvalid, "handshake: the descriptor is not a pidfd");
  }
  bool readable = false;
  const auto pid = PidOfPidfd(fd, &readable);
  if (!readable) return {};  // No /proc here: the check above has to do.
  if (!pid) return Fail(Code::kInvalid, "handshake: the descriptor is not a pidfd");
  if (*pid == -1) return Fail(Code::kInvalid, "handshake: the process of the pidfd has ended");
  if (*pid != peer.pid) {
    return Fail(Code::kInvalid,
                fmt::format("handshake: the pidfd is of process {}, the socket of process {}: a client sends "
                            "its own",
                            *pid, peer.pid));
  }
  return {};
}

Result<proto::FileDescriptor> OpenPeerPidfd(int socket, const PeerIdentity& peer) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 && fd >= 0) return proto::FileDescriptor(fd);
  if (peer.pid == 0) return proto::FileDescriptor();
  proto::FileDescriptor opened(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!opened && errno == ESRCH) return Fail(Code::kNotFound, "the client's process has ended");
  return opened;
}

}  // namespace tier::session
