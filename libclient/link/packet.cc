#include "libclient/link/packet.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tier::link {
namespace {

using proto::PacketKind;

struct Shape {
  uint32_t size;
  uint32_t descriptors_max;
};

// What a daemon may send; size 0 for everything else.
Shape ShapeOf(PacketKind kind) {
  switch (kind) {
    case PacketKind::kWelcome: return {sizeof(proto::Welcome), 3};
    case PacketKind::kWindow: return {sizeof(proto::WindowPacket), 1};
    case PacketKind::kWindowReturn: return {sizeof(proto::WindowReturnPacket), 0};
    case PacketKind::kSessionEnd: return {sizeof(proto::SessionEnd), 0};
    case PacketKind::kProcessChallenge: return {sizeof(proto::ProcessPacket), 0};
    default: return {0, 0};
  }
}

template <size_t N>
bool Terminated(const char (&text)[N]) {
  return std::memchr(text, '\0', N) != nullptr;
}

bool TextTerminated(const Packet& packet) {
  if (packet.kind() == PacketKind::kSessionEnd) return Terminated(packet.As<proto::SessionEnd>().message);
  if (packet.kind() != PacketKind::kWelcome) return true;
  const auto& welcome = packet.As<proto::Welcome>();
  return Terminated(welcome.message) && Terminated(welcome.job_name) && Terminated(welcome.token) &&
         Terminated(welcome.daemon);
}

// Takes every descriptor of the control messages, so that none leaks whatever else is wrong with the packet.
bool TakeDescriptors(msghdr& message, Packet& packet) {
  bool fits = (message.msg_flags & MSG_CTRUNC) == 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      proto::FileDescriptor taken(fd);
      if (packet.descriptor_count == packet.descriptors.size()) {
        fits = false;
      } else {
        packet.descriptors[packet.descriptor_count++] = std::move(taken);
      }
    }
  }
  return fits;
}

Status Check(const Packet& packet, bool descriptors_fit) {
  const auto& header = packet.As<proto::PacketHeader>();
  if (packet.size < sizeof(proto::PacketHeader) || header.magic != proto::kHandshakeMagic) {
    return Fail(Code::kVersion, "the peer of this socket is not a tierd daemon: its packet has no tierd header");
  }
  if (header.version < proto::kProtocolVersionMin || header.version > proto::kProtocolVersion) {
    return Fail(Code::kVersion, "the daemon speaks protocol " + std::to_string(header.version) +
                                    ", this libtier speaks " + std::to_string(proto::kProtocolVersion) +
                                    ": install the libtier that came with the daemon");
  }
  const Shape shape = ShapeOf(packet.kind());
  if (shape.size == 0 || packet.size != shape.size || header.size != shape.size || !descriptors_fit ||
      packet.descriptor_count > shape.descriptors_max || !TextTerminated(packet)) {
    return Fail(Code::kInvalid, "the daemon sent a malformed packet: kind " + std::to_string(header.kind) + ", " +
                                    std::to_string(packet.size) + " bytes, " + std::to_string(packet.descriptor_count) +
                                    " descriptors");
  }
  return {};
}

Status WaitReadable(int socket, std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd entry{socket, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
    if (ready > 0) return {};
    if (ready == 0 && left <= 0) return Fail(Code::kTimeout, "the daemon did not answer in time");
    if (ready < 0 && errno != EINTR) return Fail(Code::kIoError, std::string("poll: ") + std::strerror(errno));
  }
}

}  // namespace

PacketKind Packet::kind() const { return static_cast<PacketKind>(As<proto::PacketHeader>().kind); }

proto::PacketHeader MakeHeader(PacketKind kind, uint32_t size) {
  return {proto::kHandshakeMagic, static_cast<uint16_t>(kind), proto::kProtocolVersion, size};
}

Status Send(int socket, const void* message, uint32_t size) {
  while (::send(socket, message, size, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    return Fail(Code::kDisconnected, std::string("cannot send to the daemon: ") + std::strerror(errno));
  }
  return {};
}

Status Receive(int socket, std::chrono::steady_clock::time_point deadline, Packet& packet) {
  packet.size = 0;
  packet.descriptor_count = 0;
  iovec part{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  while (true) {
    if (auto ready = WaitReadable(socket, deadline); !ready) return ready;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Fail(Code::kDisconnected, "the daemon closed the connection");
    packet.size = static_cast<uint32_t>(got);
    const bool fits = TakeDescriptors(header, packet) && (header.msg_flags & MSG_TRUNC) == 0;
    return Check(packet, fits);
  }
}

}  // namespace tier::link
