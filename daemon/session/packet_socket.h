// Packets over a SOCK_SEQPACKET Unix socket, without ever blocking. Descriptors are sent and never received
// (passed_descriptors.h). Any thread; one at a time a socket.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

enum class SocketOutcome : uint8_t {
  kDone,
  kWouldBlock,   // Wait until the socket is readable (writable).
  kBusy,         // Send only: more descriptors of this user are on their way than the kernel allows.
  kGone,         // The other side closed, or the connection broke.
  kDescriptors,  // Receive only: the next packet carries descriptors. It stays where it is, see passed_descriptors.h.
};

struct ReceiveOptions {
  bool descriptors_refused = true;  // DescriptorsRefused(socket): none can be in a packet.
  bool credentials = false;         // AskForCredentials: the kernel says with each packet who sent it.
};

struct ReceivedPacket {
  std::vector<std::byte> bytes;
  bool truncated = false;       // Longer than any packet of the protocol.
  std::optional<ucred> sender;  // With ReceiveOptions::credentials. pid 0: in a pid namespace not visible from here.
};

// Sets SO_PASSCRED. False: the kernel refuses.
[[nodiscard]] bool AskForCredentials(int socket);
SocketOutcome ReceivePacket(int socket, const ReceiveOptions& options, ReceivedPacket* packet);
SocketOutcome SendPacket(int socket, std::span<const std::byte> bytes,
                         std::span<const proto::FileDescriptor> descriptors);

// Packets that the other side may leave unread, of the size of a window's; further ones do not fit (kWouldBlock).
void LimitUnreadPackets(int socket, size_t packets);
// How many packets of that size the other side has not read. Larger ones count for more.
size_t UnreadPackets(int socket);

// The mode of a socket's file. A link in its place, which one whose folder this is may have put there, is not followed.
// False: errno says why.
bool SetSocketMode(const std::string& path, unsigned mode);
// INVALID: the kernel takes no path of a socket that is as long.
Status CheckSocketPath(const std::string& path);
// A listening data socket at `path` with these permissions, whose clients can send no descriptors where the kernel
// supports that. REQUIRES: the caller holds the directory's lock, so what
// stands there is a dead daemon's.
Result<proto::FileDescriptor> ListenAt(const std::string& path, unsigned mode);
// Whether a passed descriptor is what ListenAt makes; INVALID says what it is not.
Status CheckListening(int fd);
// Next connection, non-blocking and close-on-exec. An empty descriptor: none is waiting. DISCONNECTED: it was shut
// down, and no other will come.
Result<proto::FileDescriptor> AcceptConnection(int listening);

}  // namespace tier::session
