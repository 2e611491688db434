// Connection: one client's data socket, from accept to close. It knows packets, the peer and its death; its owner
// interprets the packets.
//
// The idea: sending never waits. What the socket does not take is queued, and so is what the owner holds back because
// the client's user has too much unread. The queue has room for kPacketsQueuedMax: a client that asks for windows and
// reads none of them is ended. Queued packets share the descriptors of windows (SharedDescriptor), so packets of one
// session take no descriptor from another. The client is dead at the first of a pidfd event and a hang-up. No
// descriptor is received (passed_descriptors.h). Socket thread only. Kept alive by its pending operations until Close.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/session/handshake_codec.h"
#include "daemon/session/packet_socket.h"
#include "daemon/session/peer_identity.h"
#include "daemon/tiering/api/request.h"

namespace tier::session {

// Every window there can be, granted in one turn, to a client that is slow to begin reading: it maps and populates one
// before it reads the next. Only one that is shown windows, gives none back and reads nothing gets this far.
inline constexpr size_t kPacketsQueuedMax = kWindowsMax;
inline constexpr int kPacketsPerWakeMax = 64;                      // Read in one go; then others have their turn.
inline constexpr auto kFinalPacketTime = std::chrono::seconds(1);  // For a last packet to leave.

// A descriptor that many packets may carry; closed with the last of them.
using SharedDescriptor = std::shared_ptr<const proto::FileDescriptor>;

class Connection;

class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual void OnHello(const std::shared_ptr<Connection>& connection, ParsedHello hello) = 0;
  virtual void OnPacket(const std::shared_ptr<Connection>& connection, const ClientPacket& packet) = 0;
  // An attached client sent what no client sends. The owner ends the session. Nothing that it sent behind it is told.
  virtual void OnViolation(const std::shared_ptr<Connection>& connection, const std::string& what) = 0;
  // The process ended or hung up. The connection closes itself behind this call.
  virtual void OnGone(const std::shared_ptr<Connection>& connection, const std::string& why) = 0;
  // It is closed, for whatever reason; once for each connection.
  virtual void OnClosed(const std::shared_ptr<Connection>& connection) = 0;
  // Whether this client may be sent `count` descriptors now.
  virtual bool MaySendDescriptors(const Connection& connection, size_t count) = 0;
  virtual void OnDescriptorsSent(const Connection& connection, size_t count) = 0;
  // Packets wait: see blocked(). The owner calls Resume unless the socket itself is full.
  virtual void OnBlocked(const Connection& connection) = 0;
  // The connection is closing, and its process is alive as far as is known.
  virtual void TakeProcess(const Connection& connection, proto::FileDescriptor pidfd) = 0;
  // The connection is closing. `of_client`: the socket holds descriptors that its client has sent, so closing it may
  // block.
  virtual void TakeSocket(const Connection& connection, proto::FileDescriptor socket, bool of_client) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // kWaiting: its hello waits for its turn, and nothing else is read. kLeaving: it said goodbye and waits for the end
  // of its session; nothing is sent, and what it sends is dropped.
  enum class State : uint8_t { kHello, kWaiting, kOpening, kAttached, kLeaving, kFinalPacket, kClosed };
  // Why queued packets wait.
  enum class Blocked : uint8_t {
    kNo,
    kSocket,  // The client has to read first.
    kUser,    // The owner sends its user no descriptor now.
    kSystem,  // The kernel lets the daemon send no descriptor now.
  };

  Connection(boost::asio::io_context& io, proto::FileDescriptor socket, const PeerIdentity& peer,
             ConnectionOwner& owner, PidfdSource pidfd_source = PidfdSource::kSocket);

  // Begins to listen; a hello must come within `handshake_timeout`.
  void Start(std::chrono::milliseconds handshake_timeout);
  // Sends without waiting. False: the client does not read what it is sent.
  [[nodiscard]] bool Send(std::span<const std::byte> bytes, std::vector<proto::FileDescriptor> descriptors = {});
  [[nodiscard]] bool SendWindow(const memory::WindowShape& window, SharedDescriptor descriptor);
  [[nodiscard]] bool SendWindowReturn(WindowIndex window);
  // Once for each SendWindowReturn that has left: whether this client was asked for this window.
  bool TakeReturn(WindowIndex window);
  // Tries again to send what waits for the owner or the kernel.
  void Resume();
  Blocked blocked() const { return blocked_; }
  // Packets that were sent and are not read, as the kernel counts.
  size_t unread() const { return UnreadPackets(native_); }
  // From Hello to a session that the engine knows, at once or after a wait.
  void SetWaiting();
  void SetOpening(tiering::SessionId session);
  void SetAttached();
  void SetLeaving();
  // A last packet, then close. What waits to be sent is dropped: the session that it was for has ended.
  void SendFinal(std::span<const std::byte> bytes);
  void Close();

  // Of its process; -1: none is known.
  int pidfd() { return process_.is_open() ? process_.native_handle() : -1; }
  State state() const { return state_; }
  tiering::SessionId session() const { return session_; }  // 0 before SetOpening.
  const PeerIdentity& peer() const { return peer_; }

 private:
  struct Queued {
    std::vector<std::byte> bytes;
    std::vector<proto::FileDescriptor> descriptors;
    SharedDescriptor shared;               // Instead of these, where there is one.
    std::optional<WindowIndex> asks_back;  // What kWindowReturn is about.
  };
  bool Enqueue(Queued packet);
  SocketOutcome SendFront();
  void WaitReadable();
  void OnReadable();
  void ReadLater();
  void OnReceived(const ReceivedPacket& packet);
  void OnDescriptors();
  void Violate(const std::string& what);
  void OnHelloPacket(const ReceivedPacket& packet);
  Status FindProcess();
  void Challenge(proto::FileDescriptor pidfd);
  void OnProof(const ProcessProofPacket& proof, const ReceivedPacket& packet);
  Status WatchProcess(proto::FileDescriptor pidfd);
  void Refuse(const Error& error);
  void Gone(const std::string& why);
  void FlushQueue();
  void CloseSocket();

  boost::asio::posix::stream_descriptor socket_;
  const int native_;                               // Of socket_, while it is open.
  boost::asio::posix::stream_descriptor process_;  // pidfd; closed where there is none.
  boost::asio::steady_timer timer_;                // Of the handshake, then of the final packet.
  const PeerIdentity peer_;
  const PidfdSource pidfd_source_;
  ReceiveOptions receive_;
  ConnectionOwner& owner_;
  State state_ = State::kHello;
  tiering::SessionId session_{};
  std::deque<Queued> queue_;
  // Windows whose kWindowReturn has left and is not answered, and how often: one that was taken without an answer may
  // have been made, and asked for, again.
  std::unordered_map<uint32_t, uint32_t> asked_back_;
  proto::FileDescriptor unproven_pidfd_;  // Until the answer to the challenge.
  uint64_t nonce_ = 0;                    // Of a challenge that is not answered; else 0.
  Blocked blocked_ = Blocked::kNo;
  bool violated_ = false;  // The first violation ends the session: nothing behind it matters.
};

}  // namespace tier::session
