// Packets on the data socket: one message, received with its descriptors, whole, and checked before use.
//
// Thread-safety: free functions; a socket may be read by one thread while another writes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::link {

struct Packet {
  alignas(8) std::array<std::byte, proto::kPacketSizeMax> bytes;
  uint32_t size = 0;
  std::array<proto::FileDescriptor, proto::kPacketDescriptorsMax> descriptors;
  uint32_t descriptor_count = 0;

  proto::PacketKind kind() const;
  // The message as a struct. REQUIRES: Receive accepted the packet, and T is the struct of kind().
  template <typename T>
  const T& As() const {
    return *reinterpret_cast<const T*>(bytes.data());
  }
};

// A header for a message of this library's version.
proto::PacketHeader MakeHeader(proto::PacketKind kind, uint32_t size);

// Sends one message. DISCONNECTED when the daemon is gone.
Status Send(int socket, const void* message, uint32_t size);

// Receives one message: kinds that a daemon sends, of exactly their size, with their number of descriptors, all text
// terminated. TIMEOUT when no packet comes until `deadline`; DISCONNECTED at a hang-up; VERSION or INVALID for a packet
// of another protocol.
Status Receive(int socket, std::chrono::steady_clock::time_point deadline, Packet& packet);

}  // namespace tier::link
