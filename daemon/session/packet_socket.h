// Packets with descriptors over a SOCK_SEQPACKET Unix socket, without ever blocking. Any thread; one at a time a
// socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

// Descriptors that one received packet may carry before it counts as an attack (SCM_MAX_FD of Linux is 253).
inline constexpr size_t kDescriptorsReceivedMax = 16;

enum class SocketOutcome : uint8_t {
  kDone,
  kWouldBlock,  // Wait until the socket is readable (writable).
  kBusy,        // Too many descriptors are in flight in the system: try again in a moment.
  kGone,        // The other side closed, or the connection broke.
};

struct ReceivedPacket {
  std::vector<std::byte> bytes;
  std::vector<proto::FileDescriptor> descriptors;  // Close-on-exec.
  bool truncated = false;  // Longer than any packet of the protocol, or with more descriptors than were taken.
};

SocketOutcome ReceivePacket(int socket, ReceivedPacket* packet);
SocketOutcome SendPacket(int socket, std::span<const std::byte> bytes,
                         std::span<const proto::FileDescriptor> descriptors);

// A listening data socket at `path` with these permissions. REQUIRES: the caller holds the directory's lock, so what
// stands there is a dead daemon's.
Result<proto::FileDescriptor> ListenAt(const std::string& path, unsigned mode);
// Whether a passed descriptor is what ListenAt makes; INVALID says what it is not.
Status CheckListening(int fd);
// Next connection, non-blocking and close-on-exec. An empty descriptor: none is waiting.
Result<proto::FileDescriptor> AcceptConnection(int listening);

}  // namespace tier::session
