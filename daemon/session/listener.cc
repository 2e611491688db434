#include "daemon/session/listener.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/session/owner_words.h"

namespace tier::session {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

Result<proto::FileDescriptor> Duplicate(int fd) {
  proto::FileDescriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return Fail(Code::kNoMemory, fmt::format("no descriptor left for a session: {}", std::strerror(errno)));
  return copy;
}

}  // namespace

Listener::Listener(const ListenerOptions& options, const ListenerParts& parts)
    : options_(options),
      parts_(parts),
      entrances_(parts.io, {.admit = [this](auto socket, auto owner) { Admit(std::move(socket), owner); },
                            .has_room = [this] { return !closer_.full(); },
                            .on_warning = [this](const std::string& text) { Warn(text); }}),
      unread_timer_(parts.io),
      posts_(parts.io, parts.mailbox),
      attach_rate_(options.attaches_per_uid_per_second),
      attach_timer_(parts.io),
      unread_(options.unread) {}

Listener::~Listener() = default;

void Listener::Warn(const std::string& text) {
  if (!options_.on_warning) return;
  if (const auto line = warnings_.Pass(text, parts_.clock.Now())) options_.on_warning(*line);
}

void Listener::StopAccepting(const std::string& reason) {
  entrances_.Stop();
  const auto open = open_;  // A final packet that leaves at once removes its connection.
  for (const ConnectionPtr& connection : open) {
    const auto state = connection->state();
    if (state != Connection::State::kHello && state != Connection::State::kWaiting) continue;
    connection->SendFinal(BytesOf(MakeRefusal({Code::kDisconnected, reason})));
  }
}

void Listener::Admit(proto::FileDescriptor socket, std::optional<uint32_t> owner) {
  auto peer = IdentifyPeer(socket.get());
  // Nothing that a client says, nor its uid, counts beside the socket that it was given.
  if (peer && owner) peer->uid = *owner;
  if (peer) peer->of_owners_socket = owner.has_value();
  const auto connection = std::make_shared<Connection>(parts_.io, std::move(socket), peer.value_or(PeerIdentity{}),
                                                       static_cast<ConnectionOwner&>(*this), options_.pidfd_source);
  if (!peer) return Refuse(connection, peer.error());
  if (const auto over_quota = handshakes_.OverQuotaUid(peer->uid); over_quota && !MakeRoom(*over_quota)) {
    return Refuse(connection, {Code::kDenied,
                               fmt::format("{} clients are in their handshake ({} of uid {}), the limit is {} ({} of "
                                           "one user): try again",
                                           open_.size(), handshakes_.HeldBy(*over_quota), *over_quota, kHandshakesMax,
                                           handshakes_.of_one_max())});
  }
  handshakes_.Take(peer->uid);
  open_.push_back(connection);
  TIER_CHECK(open_.size() == handshakes_.taken(), "handshakes {} places {}", open_.size(), handshakes_.taken());
  connection->Start(options_.handshake_timeout);
}

// Ends the oldest handshake of `uid` in which nothing has been said. False: there is none.
bool Listener::MakeRoom(uint32_t uid) {
  const auto silent = std::find_if(open_.begin(), open_.end(), [uid](const ConnectionPtr& one) {
    return one->peer().uid == uid && one->state() == Connection::State::kHello;
  });
  if (silent == open_.end()) return false;
  // It leaves open_. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const ConnectionPtr connection = *silent;
  LeaveHandshake(connection);
  Refuse(connection, {Code::kTimeout, fmt::format("no hello came, and {} others of uid {} are in their handshake",
                                                  handshakes_.HeldBy(uid), uid)});
  return true;
}

void Listener::LeaveHandshake(const ConnectionPtr& connection) {
  if (std::erase(open_, connection) > 0) handshakes_.Give(connection->peer().uid);
}

void Listener::OnHello(const ConnectionPtr& connection, ParsedHello hello) {
  const uint32_t uid = connection->peer().uid;
  // Not before: a client that cannot send its hello does not read why.
  if (IsOwnerUid(uid) && !connection->peer().of_owners_socket) return Refuse(connection, OwnerUidRefusal(uid));
  if (auto room = CheckUnread(uid); !room) return Refuse(connection, room.error());
  const base::TimePoint now = parts_.clock.Now();
  const auto wait = attach_rate_.Take(uid, now);
  if (!wait) {
    return Refuse(connection, {Code::kDenied,
                               fmt::format("processes of uid {} attach too fast: {} in a second are possible (option "
                                           "jobs.max_attaches_per_second), and those before this one need more than "
                                           "{} s: try again",
                                           uid, options_.attaches_per_uid_per_second,
                                           std::chrono::seconds(kAttachWaitMax).count())});
  }
  if (*wait == base::Duration{0}) return LearnAndOpen(connection, hello);
  connection->SetWaiting();
  const auto place = waiting_.emplace(now + *wait, WaitingHello{connection, std::move(hello)});
  if (place == waiting_.begin()) OpenLater();
}

void Listener::OpenLater() {
  attach_timer_.expires_after(waiting_.begin()->first - parts_.clock.Now());
  attach_timer_.async_wait([this](error_code error) {
    if (!error) OpenDue();
  });
}

void Listener::OpenDue() {
  while (!waiting_.empty() && waiting_.begin()->first <= parts_.clock.Now()) {
    const WaitingHello next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    if (next.connection->state() == Connection::State::kWaiting) LearnAndOpen(next.connection, next.hello);
  }
  if (!waiting_.empty()) OpenLater();
}

void Listener::LearnAndOpen(const ConnectionPtr& connection, const ParsedHello& hello) {
  // Not owned: what looks the user up may live longer than the connection, and than this thread's loop.
  const auto open = [this, waiting = std::weak_ptr(connection), hello] {
    const ConnectionPtr there = waiting.lock();
    if (there && there->state() <= Connection::State::kWaiting) Open(there, hello);
  };
  if (!options_.learn_user || options_.learn_user(connection->peer().uid, open)) return open();
  if (connection->state() == Connection::State::kHello) connection->SetWaiting();
}

void Listener::Open(const ConnectionPtr& connection, const ParsedHello& hello) {
  const auto session = static_cast<tiering::SessionId>(++last_session_);
  std::vector<proto::FileDescriptor> for_client;
  auto prepared = Prepare(session, connection, hello, &for_client);
  if (!prepared) return Refuse(connection, prepared.error());
  connection->SetOpening(session);
  struct Opening {
    AttachRequest request;
    std::vector<proto::FileDescriptor> for_client;
  };
  auto opening = std::make_shared<Opening>(std::move(*prepared), std::move(for_client));
  PostToEngine([this, connection, opening] {
    const auto answer = [this, connection, opening](const Result<Attached>& attached) {
      asio::post(parts_.io, [this, connection, opening, attached] {
        OnAttached(connection, std::move(opening->for_client), attached);
      });
    };
    parts_.sessions.Attach(std::move(opening->request), parts_.clock.Now(), answer);
  });
}

Result<AttachRequest> Listener::Prepare(tiering::SessionId session, const ConnectionPtr& connection,
                                        const ParsedHello& hello, std::vector<proto::FileDescriptor>* for_client) {
  auto region = MakeSessionRegion(options_.epoch, session);
  if (!region) return std::unexpected(std::move(region.error()));
  proto::FileDescriptor doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell)
    return Fail(Code::kNoMemory, fmt::format("no descriptor left for a session: {}", std::strerror(errno)));
  auto page = Duplicate(parts_.page.descriptor());
  if (!page) return std::unexpected(std::move(page.error()));
  auto bell = Duplicate(doorbell.get());
  if (!bell) return std::unexpected(std::move(bell.error()));
  for_client->push_back(std::move(region->descriptor));
  for_client->push_back(std::move(*page));
  for_client->push_back(std::move(*bell));
  OpenJobRequest open = hello.open;
  open.client_pid = connection->peer().pid;
  return AttachRequest{.session = session,
                       .uid = connection->peer().uid,
                       .open = std::move(open),
                       .numa_node = hello.numa_node,
                       .region = std::move(region->mapping),
                       .doorbell = std::move(doorbell)};
}

void Listener::OnAttached(const ConnectionPtr& connection, std::vector<proto::FileDescriptor> for_client,
                          const Result<Attached>& attached) {
  // Gone meanwhile: OnGone has posted the session's end behind its beginning.
  if (connection->state() != Connection::State::kOpening) return;
  if (!attached) return Refuse(connection, attached.error());
  TIER_CHECK(for_client.size() == proto::kPacketDescriptorsMax, "descriptors {}", for_client.size());
  LeaveHandshake(connection);
  const bool fresh = attached_.emplace(static_cast<uint64_t>(connection->session()), connection).second;
  TIER_CHECK(fresh, "session {} twice", static_cast<uint64_t>(connection->session()));
  unread_.Add(static_cast<uint64_t>(connection->session()), connection->peer().uid, parts_.clock.Now());
  connection->SetAttached();
  const auto welcome = MakeWelcome({.epoch = options_.epoch,
                                    .session = static_cast<uint64_t>(connection->session()),
                                    .job = attached->job,
                                    .window_size = options_.window_size,
                                    .address_space_size = options_.address_space_size,
                                    .windows_max = options_.windows_max,
                                    .reconnect_timeout_ms = options_.reconnect_timeout_ms,
                                    .request_timeout_ms = attached->request_timeout_ms,
                                    .resumed = attached->resumed,
                                    .job_name = attached->job_name,
                                    .token = attached->token,
                                    .daemon = options_.daemon_version});
  EndUnless(connection->Send(BytesOf(welcome), std::move(for_client)), connection->session());
  if (options_.on_session_count) options_.on_session_count(attached_.size());
}

void Listener::Refuse(const ConnectionPtr& connection, const Error& error) {
  const PeerIdentity& peer = connection->peer();
  const std::string told = fmt::format("refused a client of uid {} (pid {}): {} {}", peer.uid, peer.pid,
                                       CodeName(error.code), error.message);
  // A process whose own uid is the number of an owner is not that owner: it neither reads nor bears its name.
  const bool passes_as_owner = IsOwnerUid(peer.uid) && !peer.of_owners_socket;
  const auto named = [&](const std::string& words, std::optional<uint32_t> reader) {
    return NameOwners(words, options_.owners, reader);
  };
  Warn(passes_as_owner ? told : named(told, std::nullopt));
  connection->SendFinal(
      BytesOf(MakeRefusal({error.code, passes_as_owner ? error.message : named(error.message, peer.uid)})));
}

void Listener::OnPacket(const ConnectionPtr& connection, const ClientPacket& packet) {
  const tiering::SessionId session = connection->session();
  TIER_CHECK(session != tiering::SessionId{}, "a packet before the session");
  if (std::holds_alternative<GoodbyePacket>(packet)) {
    connection->SetLeaving();
    PostToEngine([this, session, connection] {
      parts_.sessions.Detach(session, "the client said goodbye");
      // The hang-up tells the client that what it held is free.
      asio::post(parts_.io, [this, connection] {
        Drop(connection);
        connection->Close();
      });
    });
    return;
  }
  const WindowIndex window = std::get<WindowReturnedPacket>(packet).window;
  if (!connection->TakeReturn(window)) return;  // Not asked for: it would only fill the engine's mailbox.
  PostToEngine([this, session, window] { parts_.sessions.WindowReturned(session, window); });
}

void Listener::OnViolation(const ConnectionPtr& connection, const std::string& what) {
  const tiering::SessionId session = connection->session();
  TIER_CHECK(session != tiering::SessionId{} && !what.empty(), "violation before the session: {}", what);
  Warn(fmt::format("session {}: {}", static_cast<uint64_t>(session), what));
  PostToEngine([this, session, what] { parts_.sessions.End(session, Code::kRevoked, what); });
}

void Listener::OnGone(const ConnectionPtr& connection, const std::string& why) {
  if (connection->session() != tiering::SessionId{}) DetachLater(connection->session(), why);
  Drop(connection);
}

void Listener::OnClosed(const ConnectionPtr& connection) { LeaveHandshake(connection); }

void Listener::DetachLater(tiering::SessionId session, const std::string& why) {
  PostToEngine([this, session, why] { parts_.sessions.Detach(session, why); });
}

void Listener::Drop(const ConnectionPtr& connection) {
  LeaveHandshake(connection);
  const auto session = static_cast<uint64_t>(connection->session());
  const bool was_attached = attached_.erase(session) > 0;
  blocked_.erase(session);
  if (was_attached && options_.on_session_count) options_.on_session_count(attached_.size());
}

void Listener::CloseAll() {
  entrances_.Stop();
  // Copies: each close comes back as OnClosed.
  const auto open = open_;
  for (const ConnectionPtr& connection : open) connection->Close();
  blocked_.clear();
  for (const auto& [session, connection] : std::exchange(attached_, {})) connection->Close();
  for (auto& [session, left] : std::exchange(left_, {})) CloseSocket(std::move(left.socket), left.of_client);
}

Listener::ConnectionPtr Listener::ConnectionOf(tiering::SessionId session) const {
  const auto place = attached_.find(static_cast<uint64_t>(session));
  return place == attached_.end() ? nullptr : place->second;
}

void Listener::EndUnless(bool sent, tiering::SessionId session) {
  if (sent) return;
  PostToEngine([this, session] {
    parts_.sessions.End(session, Code::kRevoked,
                        fmt::format("{} packets wait because the client does not read its socket", kPacketsQueuedMax));
  });
}

bool Listener::MaySendDescriptors(const Connection& connection, size_t count) {
  const uint32_t uid = connection.peer().uid;
  if (unread_.HasRoom(uid, count)) return true;
  CountUnread();  // What its user's clients have read since the last count, welcomes for instance.
  return unread_.HasRoom(uid, count);
}

void Listener::OnDescriptorsSent(const Connection& connection, size_t count) {
  const auto session = static_cast<uint64_t>(connection.session());
  const base::TimePoint now = parts_.clock.Now();
  unread_.OnSent(session, count, now);
  // What the client has read since the last count, its welcome for instance, must not look later as if it reads now.
  unread_.OnCounted(session, connection.unread(), now);
}

void Listener::OnBlocked(const Connection& connection) {
  const auto session = static_cast<uint64_t>(connection.session());
  if (!attached_.contains(session)) return;  // A last packet: the connection's own timer ends that.
  const bool looking = !blocked_.empty();
  blocked_.insert(session);
  if (!looking) LookLater();
}

void Listener::TakeProcess(const Connection& connection, proto::FileDescriptor pidfd) {
  const auto session = static_cast<uint64_t>(connection.session());
  if (options_.ends_processes && session != 0) left_processes_.Add(session, std::move(pidfd));
}

// The kernel counts what is unread until the client reads it or closes its own end, whether this end is open or not.
// Only an open socket tells how much that is.
void Listener::TakeSocket(const Connection& connection, proto::FileDescriptor socket, bool of_client) {
  const auto session = static_cast<uint64_t>(connection.session());
  const bool counted = unread_.contains(session);
  if (counted) unread_.OnCounted(session, UnreadPackets(socket.get()), parts_.clock.Now());
  if (!counted || unread_.unread(session) == 0) {
    unread_.Remove(session);
    return CloseSocket(std::move(socket), of_client);
  }
  unread_.SetEnding(session);
  (void)::shutdown(socket.get(), SHUT_RDWR);  // The client sees a hang-up.
  left_.emplace(session, LeftSocket{std::move(socket), connection.peer().uid, of_client});
  if (left_.size() == 1 && blocked_.empty()) LookLater();
}

void Listener::CloseSocket(proto::FileDescriptor socket, bool of_client) {
  if (!of_client) return;
  if (const auto closing = closer_.Close(std::move(socket)); !closing) Warn(closing.error().message);
}

Status Listener::CheckUnread(uint32_t uid) {
  if (unread_.HasRoom(uid, proto::kPacketDescriptorsMax)) return {};
  CountUnread();
  if (unread_.HasRoom(uid, proto::kPacketDescriptorsMax)) return {};
  const bool by_ended =
      std::any_of(left_.begin(), left_.end(), [uid](const auto& left) { return left.second.uid == uid; });
  if (!by_ended) return {};  // Its sessions read, or are ended soon: the welcome waits for that.
  return Fail(
      Code::kDenied,
      fmt::format("processes of uid {} were sent {} descriptors that they have not received, and at most {} are "
                  "possible; some of their sessions have ended: end these processes",
                  uid, unread_.unread_of(uid), unread_.ShareOf(uid)));
}

void Listener::LookLater() {
  unread_timer_.expires_after(blocked_.empty() ? std::chrono::milliseconds(kLeftInterval) : kUnreadInterval);
  unread_timer_.async_wait([this](error_code error) {
    if (!error) LookAtUnread();
  });
}

void Listener::LookAtUnread() {
  std::vector<ConnectionPtr> waiting;
  for (const uint64_t session : blocked_) waiting.push_back(attached_.at(session));
  CountUnread();
  EndStalled(waiting, parts_.clock.Now());
  for (const ConnectionPtr& connection : waiting) {
    connection->Resume();
    if (connection->blocked() == Connection::Blocked::kNo) blocked_.erase(static_cast<uint64_t>(connection->session()));
  }
  if (!blocked_.empty() || !left_.empty()) LookLater();
}

void Listener::CountUnread() {
  const base::TimePoint now = parts_.clock.Now();
  for (const auto& [session, connection] : attached_) {
    if (unread_.unread(session) > 0) unread_.OnCounted(session, connection->unread(), now);
  }
  for (auto place = left_.begin(); place != left_.end();) {
    LeftSocket& left = place->second;
    unread_.OnCounted(place->first, UnreadPackets(left.socket.get()), now);
    if (unread_.unread(place->first) > 0) {
      ++place;
      continue;
    }
    unread_.Remove(place->first);
    CloseSocket(std::move(left.socket), left.of_client);
    place = left_.erase(place);
  }
}

void Listener::EndStalled(const std::vector<ConnectionPtr>& waiting, base::TimePoint now) {
  std::set<uint32_t> users;
  for (const ConnectionPtr& connection : waiting) {
    const auto session = static_cast<uint64_t>(connection->session());
    if (unread_.IsStalled(session, now)) EndForUnread(session);
    if (connection->blocked() == Connection::Blocked::kUser) users.insert(connection->peer().uid);
  }
  for (const uint32_t uid : users) {
    if (const auto stalled = unread_.StalledOfUser(uid, now)) EndForUnread(*stalled);
  }
}

void Listener::EndForUnread(uint64_t session) {
  const auto reason = fmt::format(
      "the client reads nothing from its socket: {} descriptors that it was sent are unread, and packets wait for "
      "room. A client reads its socket at all times",
      unread_.unread(session));
  unread_.SetEnding(session);
  PostToEngine([this, session, reason] {
    parts_.sessions.End(static_cast<tiering::SessionId>(session), Code::kRevoked, reason);
  });
}

void Listener::SendWindow(tiering::SessionId session, const memory::WindowShape& window, SharedDescriptor descriptor) {
  asio::post(parts_.io, [this, session, window, descriptor = std::move(descriptor)] {
    const ConnectionPtr connection = ConnectionOf(session);
    if (connection == nullptr) return;
    EndUnless(connection->SendWindow(window, descriptor), session);
  });
}

void Listener::SendWindowReturn(tiering::SessionId session, WindowIndex window) {
  asio::post(parts_.io, [this, session, window] {
    const ConnectionPtr connection = ConnectionOf(session);
    if (connection == nullptr) return;
    EndUnless(connection->SendWindowReturn(window), session);
  });
}

void Listener::EndProcess(tiering::SessionId session, const std::string& reason) {
  asio::post(parts_.io, [this, session, reason] {
    const ConnectionPtr connection = ConnectionOf(session);
    const auto number = static_cast<uint64_t>(session);
    const int pidfd = connection != nullptr ? connection->pidfd() : left_processes_.Find(number);
    const Status ended = pidfd < 0 ? Fail(Code::kNotFound, "it is not known") : session::EndProcess(pidfd);
    Warn(ended ? fmt::format("the process of session {} was killed: {}", number, reason)
               : fmt::format("the process of session {} is not killed, {}: {}", number, ended.error().message, reason));
  });
}

void Listener::SendEnd(tiering::SessionId session, Code code, const std::string& reason) {
  asio::post(parts_.io, [this, session, code, reason] {
    const ConnectionPtr connection = ConnectionOf(session);
    if (connection == nullptr) return;
    const std::string words = NameOwners(reason, options_.owners, connection->peer().uid);
    connection->SendFinal(BytesOf(MakeSessionEnd(code, words)));
    Drop(connection);
  });
}

}  // namespace tier::session
