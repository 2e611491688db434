#include "daemon/session/handshake_codec.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

#include "proto/ring.h"

namespace tier::session {
namespace {

using proto::Hello;
using proto::PacketHeader;
using proto::PacketKind;

std::unexpected<Error> Invalid(std::string what) { return Fail(Code::kInvalid, "handshake: " + std::move(what)); }

// Text in a fixed array: NUL-terminated, zero behind it, so that nothing hides there.
template <size_t N>
Result<std::string> ReadText(const char (&field)[N], std::string_view name) {
  const char* end = static_cast<const char*>(std::memchr(field, 0, N));
  if (end == nullptr) return Invalid(fmt::format("field `{}` has no NUL in its {} bytes", name, N));
  if (std::any_of(end, field + N, [](char c) { return c != 0; })) {
    return Invalid(fmt::format("field `{}` holds bytes behind its NUL", name));
  }
  return std::string(field, end);
}

// A sentence is cut at the array's end; never in the middle of a UTF-8 sequence.
template <size_t N>
void WriteText(char (&field)[N], std::string_view text) {
  size_t length = std::min(text.size(), N - 1);
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  TIER_CHECK(length < N, "{} bytes into {}", length, N);
  std::copy_n(text.begin(), length, field);
}

PacketHeader MakeHeader(PacketKind kind, size_t size) {
  return {.magic = proto::kHandshakeMagic,
          .kind = static_cast<uint16_t>(kind),
          .version = proto::kProtocolVersion,
          .size = static_cast<uint32_t>(size)};
}

// Every version of the protocol keeps this much of a packet.
Result<PacketHeader> ReadHeader(std::span<const std::byte> packet) {
  PacketHeader header;
  if (packet.size() < sizeof(header)) return Invalid(fmt::format("a packet of {} bytes is too short", packet.size()));
  std::memcpy(&header, packet.data(), sizeof(header));
  if (header.magic != proto::kHandshakeMagic) return Invalid("this is not tierd's protocol (field `magic`)");
  if (header.size != packet.size()) {
    return Invalid(fmt::format("field `size` is {}, the packet has {} bytes", header.size, packet.size()));
  }
  return header;
}

template <typename Packet>
Result<Packet> ReadPacket(std::span<const std::byte> bytes, std::string_view name) {
  Packet packet;
  if (bytes.size() != sizeof(packet)) {
    return Invalid(fmt::format("a {} packet has {} bytes, this one {}", name, sizeof(packet), bytes.size()));
  }
  std::memcpy(&packet, bytes.data(), sizeof(packet));
  return packet;
}

Status CheckHelloFields(const Hello& hello) {
  if (hello.reserved1 != 0) return Invalid("a reserved field is not zero");
  if (hello.numa_node > proto::kNumaNodesMax) {
    return Invalid(fmt::format("field `numa_node` is {}, at most {}", hello.numa_node, proto::kNumaNodesMax));
  }
  if (hello.named > 1) return Invalid(fmt::format("field `named` is {}, must be 0 or 1", hello.named));
  return {};
}

Status CheckVersion(const PacketHeader& header, std::span<const std::byte> packet) {
  uint16_t oldest = header.version;
  if (packet.size() >= offsetof(Hello, version_min) + sizeof(oldest)) {
    std::memcpy(&oldest, packet.data() + offsetof(Hello, version_min), sizeof(oldest));
  }
  if (header.version >= proto::kProtocolVersionMin && oldest <= proto::kProtocolVersion && oldest <= header.version)
    return {};
  return Fail(Code::kVersion,
              fmt::format("the client speaks protocol versions {} to {}, this daemon {} to {}: update the older "
                          "of the two",
                          oldest, header.version, proto::kProtocolVersionMin, proto::kProtocolVersion));
}

std::string Printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

}  // namespace

Result<ParsedHello> ParseHello(std::span<const std::byte> packet) {
  const auto header = ReadHeader(packet);
  if (!header) return std::unexpected(header.error());
  if (header->kind != static_cast<uint16_t>(PacketKind::kHello)) {
    return Invalid(fmt::format("the first packet must be hello, this is kind {}", header->kind));
  }
  // Before the size: another version's hello may well be longer.
  if (auto version = CheckVersion(*header, packet); !version) return std::unexpected(std::move(version.error()));
  const auto hello = ReadPacket<Hello>(packet, "hello");
  if (!hello) return std::unexpected(hello.error());
  if (auto ok = CheckHelloFields(*hello); !ok) return std::unexpected(std::move(ok.error()));
  auto job = ReadText(hello->job, "job");
  if (!job) return std::unexpected(std::move(job.error()));
  auto token = ReadText(hello->token, "token");
  if (!token) return std::unexpected(std::move(token.error()));
  auto client = ReadText(hello->client, "client");
  if (!client) return std::unexpected(std::move(client.error()));
  auto launch = ReadText(hello->launch, "launch");
  if (!launch) return std::unexpected(std::move(launch.error()));
  ParsedHello parsed = {.open = {.name = std::move(*job),
                                 .token = std::move(*token),
                                 .launch = std::move(*launch),
                                 .mode = static_cast<proto::OpenMode>(hello->mode),
                                 .named = hello->named == 1,
                                 .rank = hello->rank,
                                 .world_size = hello->world_size,
                                 .guarantee_bytes = hello->guarantee_bytes,
                                 .limit_bytes = hello->limit_bytes},
                        .pid = hello->pid,
                        .client = Printable(std::move(*client)),
                        .numa_node = hello->numa_node == 0 ? memory::kAnyNode : hello->numa_node - 1};
  if (auto ok = ValidateOpenJob(parsed.open); !ok) return std::unexpected(std::move(ok.error()));
  return parsed;
}

Result<ClientPacket> ParseClientPacket(std::span<const std::byte> packet) {
  const auto header = ReadHeader(packet);
  if (!header) return std::unexpected(header.error());
  if (header->kind == static_cast<uint16_t>(PacketKind::kGoodbye)) {
    if (const auto goodbye = ReadPacket<proto::Goodbye>(packet, "goodbye"); !goodbye)
      return std::unexpected(goodbye.error());
    return ClientPacket(GoodbyePacket{});
  }
  if (header->kind == static_cast<uint16_t>(PacketKind::kWindowReturned)) {
    const auto returned = ReadPacket<proto::WindowReturnPacket>(packet, "window-returned");
    if (!returned) return std::unexpected(returned.error());
    if (returned->reserved0 != 0) return Invalid("a reserved field is not zero");
    if (returned->window >= kWindowsMax) return Invalid(fmt::format("field `window` is {}", returned->window));
    return ClientPacket(WindowReturnedPacket{WindowIndex{returned->window}});
  }
  if (header->kind == static_cast<uint16_t>(PacketKind::kProcessProof)) {
    const auto proof = ReadPacket<proto::ProcessPacket>(packet, "process-proof");
    if (!proof) return std::unexpected(proof.error());
    return ClientPacket(ProcessProofPacket{proof->nonce});
  }
  return Invalid(fmt::format("field `kind` is {}, which a client does not send here", header->kind));
}

proto::Welcome MakeWelcome(const WelcomeFields& fields) {
  proto::Welcome welcome{};
  welcome.header = MakeHeader(PacketKind::kWelcome, sizeof(welcome));
  welcome.resumed = fields.resumed ? 1 : 0;
  welcome.epoch = fields.epoch;
  welcome.session = fields.session;
  welcome.job = fields.job;
  welcome.window_size = fields.window_size;
  welcome.address_space_size = fields.address_space_size;
  welcome.windows_max = fields.windows_max;
  welcome.reconnect_timeout_ms = fields.reconnect_timeout_ms;
  welcome.request_timeout_ms = fields.request_timeout_ms;
  welcome.session_region_size = proto::kSessionRegionSize;
  WriteText(welcome.job_name, fields.job_name);
  WriteText(welcome.token, fields.token);
  WriteText(welcome.daemon, fields.daemon);
  return welcome;
}

proto::Welcome MakeRefusal(const Error& error) {
  proto::Welcome welcome{};
  welcome.header = MakeHeader(PacketKind::kWelcome, sizeof(welcome));
  welcome.code = static_cast<uint16_t>(error.code);
  WriteText(welcome.message, error.message);
  return welcome;
}

proto::WindowPacket MakeWindowPacket(const memory::WindowShape& window) {
  proto::WindowPacket packet{};
  packet.header = MakeHeader(PacketKind::kWindow, sizeof(packet));
  packet.window = Value(window.index);
  packet.kind = static_cast<uint16_t>(window.kind);
  packet.page_size = window.page_size;
  packet.size = window.size;
  packet.place = window.place;
  return packet;
}

proto::WindowReturnPacket MakeWindowReturnPacket(PacketKind kind, WindowIndex window) {
  proto::WindowReturnPacket packet{};
  packet.header = MakeHeader(kind, sizeof(packet));
  packet.window = Value(window);
  return packet;
}

proto::ProcessPacket MakeProcessChallenge(uint64_t nonce) {
  return {.header = MakeHeader(PacketKind::kProcessChallenge, sizeof(proto::ProcessPacket)), .nonce = nonce};
}

proto::SessionEnd MakeSessionEnd(Code code, const std::string& reason) {
  proto::SessionEnd end{};
  end.header = MakeHeader(PacketKind::kSessionEnd, sizeof(end));
  end.code = static_cast<uint16_t>(code);
  WriteText(end.message, reason);
  return end;
}

}  // namespace tier::session
