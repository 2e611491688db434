#include "daemon/session/packet_socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/passed_descriptors.h"

namespace tier::session {
namespace {

// One recvmsg. The control buffer has room for exactly one ucred, which the kernel writes first: descriptors find no
// room behind it. Without credentials there is no buffer at all.
class Incoming {
 public:
  explicit Incoming(bool credentials) : credentials_(credentials) {}
  ssize_t Receive(int socket, std::span<std::byte> bytes, int flags) {
    iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    message_ = {};
    message_.msg_iov = &part;
    message_.msg_iovlen = 1;
    if (credentials_) {
      message_.msg_control = control_.data();
      message_.msg_controllen = control_.size();
    }
    ssize_t received = -1;
    do {
      received = ::recvmsg(socket, &message_, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
    } while (received < 0 && errno == EINTR);
    return received;
  }
  const msghdr& message() const { return message_; }

 private:
  const bool credentials_;
  msghdr message_{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control_{};
};

std::optional<ucred> SenderOf(const msghdr& message) {
  const cmsghdr* control = CMSG_FIRSTHDR(&message);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_CREDENTIALS) return {};
  ucred sender{};
  std::memcpy(&sender, CMSG_DATA(control), sizeof(sender));
  return sender;
}

}  // namespace

bool AskForCredentials(int socket) {
  const int on = 1;
  return ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0;
}

SocketOutcome ReceivePacket(int socket, const ReceiveOptions& options, ReceivedPacket* packet) {
  packet->bytes.resize(proto::kPacketSizeMax + 1);
  packet->sender.reset();
  Incoming incoming(options.credentials);
  if (!options.descriptors_refused) {
    std::byte first{};
    const ssize_t next = incoming.Receive(socket, {&first, 1}, MSG_PEEK);
    if (next >= 0 && (incoming.message().msg_flags & MSG_CTRUNC) != 0) return SocketOutcome::kDescriptors;
  }
  const ssize_t received = incoming.Receive(socket, packet->bytes, 0);
  if (received < 0) return errno == EAGAIN ? SocketOutcome::kWouldBlock : SocketOutcome::kGone;
  packet->truncated = (incoming.message().msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (options.credentials) packet->sender = SenderOf(incoming.message());
  TIER_CHECK(static_cast<size_t>(received) <= packet->bytes.size(), "received {}", received);
  packet->bytes.resize(static_cast<size_t>(received));
  // With credentials an empty packet differs from the end, which has no sender.
  return received == 0 && !packet->sender ? SocketOutcome::kGone : SocketOutcome::kDone;
}

SocketOutcome SendPacket(int socket, std::span<const std::byte> bytes,
                         std::span<const proto::FileDescriptor> descriptors) {
  TIER_CHECK(descriptors.size() <= proto::kPacketDescriptorsMax, "descriptors {}", descriptors.size());
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(proto::kPacketDescriptorsMax * sizeof(int))> control{};
  iovec part = {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (size_t i = 0; i < descriptors.size(); ++i) {
      const int fd = descriptors[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return SocketOutcome::kDone;
  if (errno == EAGAIN || errno == ENOBUFS) return SocketOutcome::kWouldBlock;
  return errno == ETOOMANYREFS ? SocketOutcome::kBusy : SocketOutcome::kGone;
}

namespace {

// What the kernel charges the sender for one small packet until it is read. It differs between kernels.
size_t MeasurePacketCharge() {
  constexpr size_t kUsual = 768;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return kUsual;
  const proto::FileDescriptor sender(pair[0]);
  const proto::FileDescriptor receiver(pair[1]);
  const proto::WindowPacket packet{};
  int charged = 0;
  const bool measured = ::send(sender.get(), &packet, sizeof(packet), 0) == sizeof(packet) &&
                        ::ioctl(sender.get(), SIOCOUTQ, &charged) == 0 && charged > 0;
  return measured ? static_cast<size_t>(charged) : kUsual;
}

size_t PacketCharge() {
  static const size_t charge = MeasurePacketCharge();
  return charge;
}

}  // namespace

void LimitUnreadPackets(int socket, size_t packets) {
  const int half = static_cast<int>(packets * PacketCharge() / 2);  // The kernel doubles what it is told.
  (void)::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
}

size_t UnreadPackets(int socket) {
  int charged = 0;
  if (::ioctl(socket, SIOCOUTQ, &charged) != 0 || charged <= 0) return 0;
  return (static_cast<size_t>(charged) + PacketCharge() - 1) / PacketCharge();
}

bool SetSocketMode(const std::string& path, unsigned mode) {
  return ::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) == 0;
}

Status CheckSocketPath(const std::string& path) {
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() <= kMost) return {};
  return Fail(Code::kInvalid,
              fmt::format("the socket path {} has {} characters, at most {} are allowed: choose a shorter "
                          "daemon.socket_directory",
                          path, path.size(), kMost));
}

Result<proto::FileDescriptor> ListenAt(const std::string& path, unsigned mode) {
  if (auto fits = CheckSocketPath(path); !fits) return std::unexpected(std::move(fits.error()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Fail(Code::kIoError, fmt::format("cannot make a socket: {}", std::strerror(errno)));
  (void)::unlink(path.c_str());  // A dead daemon's, if any: bind says what else stands there.
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Fail(errno == EACCES ? Code::kDenied : Code::kIoError,
                fmt::format("cannot make the socket {}: {}", path, std::strerror(errno)));
  }
  RefuseDescriptors(socket.get());
  // No client can connect before listen, so the permissions hold for every connection.
  if (!SetSocketMode(path, mode) || ::listen(socket.get(), SOMAXCONN) != 0) {
    return Fail(Code::kIoError, fmt::format("cannot listen at {}: {}", path, std::strerror(errno)));
  }
  return socket;
}

Status CheckListening(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  if (option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_SEQPACKET && option(SO_ACCEPTCONN) == 1) return {};
  return Fail(Code::kInvalid,
              "the socket passed by the service manager is no listening Unix socket of packets: the unit needs "
              "ListenSequentialPacket=");
}

Result<proto::FileDescriptor> AcceptConnection(int listening) {
  for (;;) {
    const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return proto::FileDescriptor(fd);
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return proto::FileDescriptor();
    if (errno == EINVAL) return Fail(Code::kDisconnected, "the socket does not listen any more");
    return Fail(Code::kIoError, fmt::format("accept: {}", std::strerror(errno)));
  }
}

}  // namespace tier::session
