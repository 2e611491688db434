#include "daemon/session/connection.h"

#include <sys/socket.h>

#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/session/passed_descriptors.h"
#include "daemon/session/token_source.h"
#include "daemon/session/unread_windows.h"

namespace tier::session {

namespace asio = boost::asio;
using boost::system::error_code;

Connection::Connection(asio::io_context& io, proto::FileDescriptor socket, const PeerIdentity& peer,
                       ConnectionOwner& owner, PidfdSource pidfd_source)
    : socket_(io, socket.Release()),
      native_(socket_.native_handle()),
      process_(io),
      timer_(io),
      peer_(peer),
      pidfd_source_(pidfd_source),
      receive_{.descriptors_refused = DescriptorsRefused(native_)},
      owner_(owner) {
  LimitUnreadPackets(native_, kPacketsUnreadMax);
  // Credentials show an empty packet as a packet: one with descriptors may stand behind it.
  if (!receive_.descriptors_refused) receive_.credentials = AskForCredentials(native_);
}

void Connection::Start(std::chrono::milliseconds handshake_timeout) {
  TIER_CHECK(state_ == State::kHello, "state {}", static_cast<int>(state_));
  timer_.expires_after(handshake_timeout);
  timer_.async_wait([self = shared_from_this(), handshake_timeout](error_code error) {
    if (error || self->state_ != State::kHello) return;
    self->Refuse({Code::kTimeout, fmt::format("no hello came within {} ms", handshake_timeout.count())});
  });
  WaitReadable();
}

void Connection::WaitReadable() {
  socket_.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](error_code error) {
    if (!error && self->state_ != State::kClosed) self->OnReadable();
  });
}

void Connection::OnReadable() {
  for (int i = 0; i < kPacketsPerWakeMax; ++i) {
    ReceivedPacket packet;
    switch (ReceivePacket(native_, receive_, &packet)) {
      case SocketOutcome::kDone: OnReceived(packet); break;
      case SocketOutcome::kDescriptors: return OnDescriptors();
      case SocketOutcome::kGone: return Gone("the client hung up");
      case SocketOutcome::kWouldBlock:
      case SocketOutcome::kBusy: return WaitReadable();
    }
    if (state_ == State::kClosed || state_ == State::kWaiting) return;
  }
  // The reactor is edge-triggered: what was left would not be told again.
  ReadLater();
}

void Connection::ReadLater() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kClosed) self->OnReadable();
  });
}

// Nothing more is read: the packet, and what the client has queued behind it, stays until the socket is closed.
void Connection::OnDescriptors() {
  static constexpr char kWhat[] = "a packet carries descriptors, and a client sends none";
  if (state_ == State::kHello) return Refuse({Code::kInvalid, std::string("handshake: ") + kWhat});
  if (state_ != State::kLeaving && state_ != State::kFinalPacket && !violated_) Violate(kWhat);
}

void Connection::OnReceived(const ReceivedPacket& packet) {
  if (state_ == State::kHello) return OnHelloPacket(packet);
  if (state_ == State::kLeaving || state_ == State::kFinalPacket || violated_) return;  // Too late for it to matter.
  if (packet.truncated) return Violate("a packet is longer than any of the protocol");
  const auto parsed = ParseClientPacket(packet.bytes);
  if (!parsed) return Violate(parsed.error().message);
  if (const auto* proof = std::get_if<ProcessProofPacket>(&*parsed)) return OnProof(*proof, packet);
  owner_.OnPacket(shared_from_this(), *parsed);
}

void Connection::Violate(const std::string& what) {
  violated_ = true;
  owner_.OnViolation(shared_from_this(), what);
}

void Connection::OnHelloPacket(const ReceivedPacket& packet) {
  if (packet.truncated) return Refuse({Code::kInvalid, "handshake: the packet is longer than any of the protocol"});
  auto hello = ParseHello(packet.bytes);
  if (!hello) return Refuse(hello.error());
  if (auto found = FindProcess(); !found) return Refuse(found.error());
  timer_.cancel();
  owner_.OnHello(shared_from_this(), std::move(*hello));
}

Status Connection::FindProcess() {
  auto found = OpenPeerPidfd(native_, peer_, pidfd_source_);
  if (!found) return std::unexpected(std::move(found.error()));
  if (!found->descriptor) return {};
  if (found->proven) return WatchProcess(std::move(found->descriptor));
  Challenge(std::move(found->descriptor));
  return {};
}

// The process that connected may have ended, and its number may be another's now: the pidfd counts once a packet that
// was sent after it was opened comes from that number, while it still shows the process alive.
void Connection::Challenge(proto::FileDescriptor pidfd) {
  receive_.credentials = receive_.credentials || AskForCredentials(native_);
  if (!receive_.credentials) return;
  KernelTokenSource random;
  while (nonce_ == 0) nonce_ = random.Random();
  unproven_pidfd_ = std::move(pidfd);
  (void)Send(BytesOf(MakeProcessChallenge(nonce_)));  // The first packet: there is room.
}

void Connection::OnProof(const ProcessProofPacket& proof, const ReceivedPacket& packet) {
  if (nonce_ == 0 || proof.nonce != nonce_) return Violate("a process proof answers no challenge");
  nonce_ = 0;
  proto::FileDescriptor pidfd = std::move(unproven_pidfd_);
  // Sent by another process, a forked child perhaps: then only the hang-up tells of the end.
  if (!packet.sender || packet.sender->pid != peer_.pid || HasEnded(pidfd.get())) return;
  (void)WatchProcess(std::move(pidfd));  // Without it the hang-up tells.
}

Status Connection::WatchProcess(proto::FileDescriptor pidfd) {
  error_code error;
  (void)process_.assign(pidfd.get(), error);
  if (error) return Fail(Code::kIoError, fmt::format("cannot watch the client's process: {}", error.message()));
  (void)pidfd.Release();  // process_ closes it.
  process_.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](error_code failed) {
    if (!failed) self->Gone("its process ended");
  });
  return {};
}

bool Connection::Send(std::span<const std::byte> bytes, std::vector<proto::FileDescriptor> descriptors) {
  TIER_CHECK(descriptors.size() <= proto::kPacketDescriptorsMax, "descriptors {}", descriptors.size());
  return Enqueue({{bytes.begin(), bytes.end()}, std::move(descriptors), nullptr, std::nullopt});
}

bool Connection::SendWindow(const memory::WindowShape& window, SharedDescriptor descriptor) {
  TIER_CHECK(descriptor != nullptr && *descriptor, "no descriptor to share");
  const auto packet = MakeWindowPacket(window);
  const auto bytes = BytesOf(packet);
  return Enqueue({{bytes.begin(), bytes.end()}, {}, std::move(descriptor), std::nullopt});
}

bool Connection::SendWindowReturn(WindowIndex window) {
  const auto packet = MakeWindowReturnPacket(proto::PacketKind::kWindowReturn, window);
  const auto bytes = BytesOf(packet);
  return Enqueue({{bytes.begin(), bytes.end()}, {}, nullptr, window});
}

bool Connection::Enqueue(Queued packet) {
  TIER_CHECK(!packet.bytes.empty() && packet.bytes.size() <= proto::kPacketSizeMax, "packet of {} bytes",
             packet.bytes.size());
  if (state_ == State::kLeaving || state_ == State::kClosed) return true;
  if (queue_.size() == kPacketsQueuedMax) return false;
  queue_.push_back(std::move(packet));
  if (blocked_ == Blocked::kNo) FlushQueue();
  return true;
}

bool Connection::TakeReturn(WindowIndex window) {
  const auto asked = asked_back_.find(Value(window));
  if (asked == asked_back_.end()) return false;
  if (--asked->second == 0) asked_back_.erase(asked);
  return true;
}

void Connection::Resume() {
  if (state_ != State::kClosed && (blocked_ == Blocked::kUser || blocked_ == Blocked::kSystem)) FlushQueue();
}

// kDescriptors: the owner holds it back.
SocketOutcome Connection::SendFront() {
  const Queued& packet = queue_.front();
  const auto descriptors = packet.shared ? std::span(packet.shared.get(), 1) : std::span(packet.descriptors);
  const size_t count = descriptors.size();
  if (count > 0 && !owner_.MaySendDescriptors(*this, count)) return SocketOutcome::kDescriptors;
  const auto outcome = SendPacket(native_, packet.bytes, descriptors);
  if (outcome != SocketOutcome::kDone) return outcome;
  if (packet.asks_back) ++asked_back_[Value(*packet.asks_back)];
  queue_.pop_front();
  if (count > 0) owner_.OnDescriptorsSent(*this, count);
  return outcome;
}

void Connection::FlushQueue() {
  blocked_ = Blocked::kNo;
  TIER_CHECK(queue_.size() <= kPacketsQueuedMax, "queued {}", queue_.size());
  while (!queue_.empty()) {
    const SocketOutcome outcome = SendFront();
    if (outcome == SocketOutcome::kDone) continue;
    if (outcome == SocketOutcome::kGone) {
      queue_.clear();  // The reading side sees the hang-up, and any last words, by itself.
      break;
    }
    if (outcome == SocketOutcome::kWouldBlock) {
      blocked_ = Blocked::kSocket;
      socket_.async_wait(asio::posix::descriptor_base::wait_write, [self = shared_from_this()](error_code error) {
        if (!error && self->state_ != State::kClosed) self->FlushQueue();
      });
    } else {
      blocked_ = outcome == SocketOutcome::kBusy ? Blocked::kSystem : Blocked::kUser;
    }
    return owner_.OnBlocked(*this);
  }
  if (state_ == State::kFinalPacket) Close();
}

void Connection::SetWaiting() {
  TIER_CHECK(state_ == State::kHello, "state {}", static_cast<int>(state_));
  state_ = State::kWaiting;
}

void Connection::SetOpening(tiering::SessionId session) {
  TIER_CHECK(state_ == State::kHello || state_ == State::kWaiting, "state {}", static_cast<int>(state_));
  if (state_ == State::kWaiting) ReadLater();
  TIER_CHECK(session_ == tiering::SessionId{} && session != tiering::SessionId{}, "session {} after {}",
             static_cast<uint64_t>(session), static_cast<uint64_t>(session_));
  state_ = State::kOpening;
  session_ = session;
}

void Connection::SetAttached() {
  TIER_CHECK(state_ == State::kOpening, "state {}", static_cast<int>(state_));
  state_ = State::kAttached;
}

void Connection::SetLeaving() {
  TIER_CHECK(state_ == State::kOpening || state_ == State::kAttached, "state {}", static_cast<int>(state_));
  state_ = State::kLeaving;
  queue_.clear();
}

void Connection::Refuse(const Error& error) { SendFinal(BytesOf(MakeRefusal(error))); }

void Connection::SendFinal(std::span<const std::byte> bytes) {
  if (state_ == State::kClosed || state_ == State::kFinalPacket) return;
  if (state_ == State::kLeaving) return Close();
  queue_.clear();
  if (blocked_ != Blocked::kSocket) blocked_ = Blocked::kNo;
  timer_.expires_after(kFinalPacketTime);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->Close();
  });
  if (!Send(bytes)) return Close();
  state_ = State::kFinalPacket;
  if (queue_.empty()) Close();
}

void Connection::Gone(const std::string& why) {
  if (state_ == State::kClosed) return;
  owner_.OnGone(shared_from_this(), why);
  Close();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  CloseSocket();
  if (process_.is_open()) owner_.TakeProcess(*this, proto::FileDescriptor(process_.release()));
  timer_.cancel();
  queue_.clear();
  owner_.OnClosed(shared_from_this());
}

// A Unix socket that is closed with unread data resets the other side, which then loses its last packet from us. And
// what is unread may hold descriptors, whose last close is not for this thread.
void Connection::CloseSocket() {
  if (!receive_.descriptors_refused) (void)::shutdown(native_, SHUT_RD);  // Nothing comes behind this.
  SocketOutcome outcome = SocketOutcome::kDone;
  for (int i = 0; i < kPacketsPerWakeMax && outcome == SocketOutcome::kDone; ++i) {
    ReceivedPacket packet;
    outcome = ReceivePacket(native_, receive_, &packet);
  }
  const bool empty = outcome == SocketOutcome::kGone || outcome == SocketOutcome::kWouldBlock;
  const bool of_client = !receive_.descriptors_refused && !empty;
  owner_.TakeSocket(*this, proto::FileDescriptor(socket_.release()), of_client);
}

}  // namespace tier::session
