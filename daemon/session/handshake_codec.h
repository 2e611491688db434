// The packets of the data socket, parsed and built. Pure: bytes in, checked values out.
// Nothing that a client sent is used before it passed here. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "daemon/memory/window_source.h"
#include "daemon/session/control_api.h"
#include "proto/handshake.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::session {

struct ParsedHello {
  OpenJobRequest open;               // Passed ValidateOpenJob.
  int32_t pid = 0;                   // As the client sees itself; for display only.
  std::string client;                // For display only; printable.
  int numa_node = memory::kAnyNode;  // That memory for it should come from.
};

// The first packet of a connection. VERSION for a client of another protocol, INVALID naming the field for the rest,
// and ValidateOpenJob's refusals.
Result<ParsedHello> ParseHello(std::span<const std::byte> packet);

struct GoodbyePacket {};
struct WindowReturnedPacket {
  WindowIndex window{};
};
struct ProcessProofPacket {
  uint64_t nonce = 0;
};
using ClientPacket = std::variant<GoodbyePacket, WindowReturnedPacket, ProcessProofPacket>;
// Any packet after the first.
Result<ClientPacket> ParseClientPacket(std::span<const std::byte> packet);

struct WelcomeFields {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t job = 0;
  uint64_t window_size = 0;
  uint64_t address_space_size = 0;
  uint32_t windows_max = 0;
  uint32_t reconnect_timeout_ms = 0;
  uint32_t request_timeout_ms = 0;
  bool resumed = false;
  std::string job_name;
  std::string token;
  std::string daemon;
};
// The bytes of a packet, which outlives them.
template <typename Packet>
std::span<const std::byte> BytesOf(const Packet& packet) {
  return std::as_bytes(std::span(&packet, 1));
}

proto::Welcome MakeWelcome(const WelcomeFields& fields);
proto::Welcome MakeRefusal(const Error& error);
proto::WindowPacket MakeWindowPacket(const memory::WindowShape& window);
proto::WindowReturnPacket MakeWindowReturnPacket(proto::PacketKind kind, WindowIndex window);
proto::ProcessPacket MakeProcessChallenge(uint64_t nonce);
proto::SessionEnd MakeSessionEnd(Code code, const std::string& reason);

}  // namespace tier::session
