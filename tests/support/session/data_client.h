// DataClient: the client's end of the data socket, for tests: the handshake as libtier does it, and every way of doing
// it wrong. Blocking, with a limit on each wait so that a daemon that says nothing fails the test and does not hang it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/ring.h"
#include "tests/support/session/ring_client.h"

namespace tier::session::testing {

inline constexpr int kWaitMs = 20'000;  // Longer than any loaded machine needs.

struct IncomingPacket {
  bool closed = false;  // Hang-up (or reset) instead of a packet.
  std::vector<std::byte> bytes;
  std::vector<proto::FileDescriptor> descriptors;
  proto::PacketKind kind() const;
  template <typename Packet>
  Packet As() const {
    Packet packet{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof(packet)), reinterpret_cast<std::byte*>(&packet));
    return packet;
  }
};

proto::Hello MakeHello(const std::string& job = {}, const std::string& token = {});
// Runs `body` in a child process and returns what it did, its exit status; -1: it did not get there.
int InChild(const std::function<int()>& body);

class DataClient {
 public:
  // Connects; aborts the test binary if nobody listens.
  explicit DataClient(const std::string& socket_path);
  // Takes over a connected socket.
  explicit DataClient(proto::FileDescriptor socket) : socket_(std::move(socket)) {}

  bool SendBytes(std::span<const std::byte> bytes, std::span<const int> descriptors = {});
  template <typename Packet>
  bool Send(const Packet& packet, std::span<const int> descriptors = {}) {
    return SendBytes(std::as_bytes(std::span(&packet, 1)), descriptors);
  }
  void SendGoodbye();
  IncomingPacket Receive(int wait_ms = kWaitMs);
  // The sentence of a refusal; aborts the test binary unless one comes and the connection closes behind it.
  proto::Welcome ReceiveRefusal();

  // Hello and Welcome, with the answer to a challenge between them; on OK the session's memory is mapped.
  proto::Welcome Attach(const proto::Hello& hello);
  RingClient& ring() { return *ring_; }
  // Rings the doorbell if what was published needs it.
  void Ring();
  uint32_t engine_sleeping() const;  // One of proto::kAwake and its neighbours.
  // Waits (by futex) until the daemon has answered, and returns what there is.
  std::vector<ReceivedCompletion> WaitForCompletions(size_t count);
  int socket() const { return socket_.get(); }
  int doorbell() const { return doorbell_.get(); }
  int region_descriptor() const { return region_.get(); }
  int page_descriptor() const { return page_file_.get(); }
  void Close() { socket_.Reset(); }

 private:
  proto::FileDescriptor socket_;
  proto::FileDescriptor region_;
  proto::FileDescriptor page_file_;
  proto::FileDescriptor doorbell_;
  proto::Mapping page_;
  std::unique_ptr<RingClient> ring_;
};

}  // namespace tier::session::testing
