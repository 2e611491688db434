// Listener: the data socket. Accepts clients, takes them through the handshake, gives them their session's memory and
// carries what is said on sockets to the engine thread and back.
//
// The idea: this thread owns sockets and no state of the engine's; the engine thread owns sessions and no sockets. They
// meet in the mailbox (from here) and in posted handlers (to here), both in order: a session's end can never overtake
// its beginning.
//
// Socket thread, except the SessionNotices, which the engine thread calls.
// Invariants: connections in handshake <= kHandshakesMax, none of them closed, and of one user at most all but an
// eighth of that: the oldest that has said nothing yet makes room. A session id is given once. Who comes by the socket
// of an owner is that owner, whatever the kernel says of its uid; and a client of another socket that has such a uid is
// refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "daemon/base/clock.h"
#include "daemon/base/mailbox.h"
#include "daemon/session/attach_rate.h"
#include "daemon/session/connection.h"
#include "daemon/session/engine_page.h"
#include "daemon/session/engine_posts.h"
#include "daemon/session/entrances.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/passed_descriptors.h"
#include "daemon/session/process_end.h"
#include "daemon/session/session_table.h"
#include "daemon/session/uid_quota.h"
#include "daemon/session/unread_windows.h"
#include "daemon/session/warning_limit.h"

namespace tier::session {

inline constexpr size_t kHandshakesMax = 256;
// How often sockets with unread packets are looked at: while packets wait for others to be read, and otherwise while
// sessions that have ended left some unread.
inline constexpr auto kUnreadInterval = std::chrono::milliseconds(20);
inline constexpr auto kLeftInterval = std::chrono::seconds(1);

struct ListenerOptions {
  uint64_t epoch = 0;
  uint64_t window_size = 0;
  uint64_t address_space_size = 0;
  uint32_t windows_max = 0;
  uint32_t reconnect_timeout_ms = 0;
  std::string daemon_version;  // "tierd 0.1.0".
  std::chrono::milliseconds handshake_timeout{5000};
  PidfdSource pidfd_source = PidfdSource::kSocket;
  UnreadLimits unread;
  bool ends_processes = false;                // SessionNotices::EndProcess does so: pidfds are kept for it.
  uint32_t attaches_per_uid_per_second = 50;  // And kAttachBurst at once.
  // True: what is needed of this user is known. Else `then` is called once it is, on the thread of `io`. May be empty.
  std::function<bool(uint32_t uid, std::function<void()> then)> learn_user;
  // Told whenever a session begins or ends: how many there are. May be empty.
  std::function<void(size_t)> on_session_count;
  const OwnerTable* owners = nullptr;  // Null: there are none.
  // Told what no client hears: refused handshakes, accept errors; within WarningLimit. May be empty.
  std::function<void(const std::string&)> on_warning;
};

struct ListenerParts {
  boost::asio::io_context& io;
  base::Mailbox& mailbox;
  SessionTable& sessions;  // Touched only inside closures for the engine thread.
  const EnginePageOwner& page;
  const base::Clock& clock;
};

class Listener final : public SessionNotices, private ConnectionOwner {
 public:
  Listener(const ListenerOptions& options, const ListenerParts& parts);
  ~Listener() override;

  void Start(proto::FileDescriptor listening) { entrances_.Start(std::move(listening)); }
  // For clients that attach from now on.
  void SetAttachRate(uint32_t attaches_per_uid_per_second) {
    options_.attaches_per_uid_per_second = attaches_per_uid_per_second;
    attach_rate_.SetRate(attaches_per_uid_per_second);
  }
  // From now on. What is known of processes that have left stays.
  void SetEndsProcesses(bool ends_processes) { options_.ends_processes = ends_processes; }
  // Each client that connects here is `owner`. Once no more clients are taken it ends the socket.
  // REQUIRES: IsOwnerUid(owner).
  void StartFor(uint32_t owner, proto::FileDescriptor listening) { entrances_.StartFor(owner, std::move(listening)); }
  // Its sessions go on. Does nothing where it was not started.
  void StopFor(uint32_t owner) { entrances_.StopFor(owner); }
  // Takes no more clients; those that have not said hello yet are told DISCONNECTED and why.
  void StopAccepting(const std::string& reason);
  size_t session_count() const { return attached_.size(); }
  bool idle() const { return attached_.empty() && open_.empty(); }  // No client is connected.
  void CloseAll();

  // SessionNotices; engine thread.
  void SendWindow(tiering::SessionId session, const memory::WindowShape& window, SharedDescriptor descriptor) override;
  void SendWindowReturn(tiering::SessionId session, WindowIndex window) override;
  void EndProcess(tiering::SessionId session, const std::string& reason) override;
  void SendEnd(tiering::SessionId session, Code code, const std::string& reason) override;

 private:
  using ConnectionPtr = std::shared_ptr<Connection>;

  void Admit(proto::FileDescriptor socket, std::optional<uint32_t> owner);
  bool MakeRoom(uint32_t uid);
  void LeaveHandshake(const ConnectionPtr& connection);
  void OnHello(const ConnectionPtr& connection, ParsedHello hello) override;
  void LearnAndOpen(const ConnectionPtr& connection, const ParsedHello& hello);
  void Open(const ConnectionPtr& connection, const ParsedHello& hello);
  void OpenLater();
  void OpenDue();
  void OnPacket(const ConnectionPtr& connection, const ClientPacket& packet) override;
  void OnViolation(const ConnectionPtr& connection, const std::string& what) override;
  void OnGone(const ConnectionPtr& connection, const std::string& why) override;
  void OnClosed(const ConnectionPtr& connection) override;
  bool MaySendDescriptors(const Connection& connection, size_t count) override;
  void OnDescriptorsSent(const Connection& connection, size_t count) override;
  void OnBlocked(const Connection& connection) override;
  void TakeProcess(const Connection& connection, proto::FileDescriptor pidfd) override;
  void TakeSocket(const Connection& connection, proto::FileDescriptor socket, bool of_client) override;
  void CloseSocket(proto::FileDescriptor socket, bool of_client);
  // DENIED: sessions of the user that have ended left so much unread that no other is possible.
  Status CheckUnread(uint32_t uid);
  Result<AttachRequest> Prepare(tiering::SessionId session, const ConnectionPtr& connection, const ParsedHello& hello,
                                std::vector<proto::FileDescriptor>* for_client);
  void OnAttached(const ConnectionPtr& connection, std::vector<proto::FileDescriptor> for_client,
                  const Result<Attached>& attached);
  void Refuse(const ConnectionPtr& connection, const Error& error);
  void PostToEngine(std::function<void()> closure) { posts_.Post(std::move(closure)); }
  void DetachLater(tiering::SessionId session, const std::string& why);
  // The session's connection; null once it is gone.
  ConnectionPtr ConnectionOf(tiering::SessionId session) const;
  void EndUnless(bool sent, tiering::SessionId session);
  void LookLater();
  void LookAtUnread();
  void CountUnread();
  // Ends the sessions that others wait for and that do not read.
  void EndStalled(const std::vector<ConnectionPtr>& waiting, base::TimePoint now);
  void EndForUnread(uint64_t session);
  void Drop(const ConnectionPtr& connection);
  void Warn(const std::string& text);

  ListenerOptions options_;
  ListenerParts parts_;
  Entrances entrances_;
  boost::asio::steady_timer unread_timer_;
  // A connection has at most three there (attach, end, detach) and one for each window it was asked for.
  EnginePosts posts_;
  uint64_t last_session_ = 0;
  AttachRate attach_rate_;
  boost::asio::steady_timer attach_timer_;
  struct WaitingHello {
    ConnectionPtr connection;
    ParsedHello hello;
  };
  std::multimap<base::TimePoint, WaitingHello> waiting_;  // By their turns to attach. At most one a handshake.
  WarningLimit warnings_;
  BackgroundCloser closer_;
  std::vector<ConnectionPtr> open_;  // In handshake, opening, or being refused; in the order of their arrival.
  UidQuota handshakes_{kHandshakesMax, PerUidLimit(kHandshakesMax)};  // Of open_.
  std::unordered_map<uint64_t, ConnectionPtr> attached_;              // By session.
  UnreadWindows unread_;                                              // Of attached_.
  std::set<uint64_t> blocked_;  // Sessions whose packets wait; looked at until it is empty.
  // Of a session that has ended and left descriptors unread.
  struct LeftSocket {
    proto::FileDescriptor socket;
    uint32_t uid = 0;
    bool of_client = false;  // TakeSocket.
  };
  LeftProcesses left_processes_{parts_.io};
  std::unordered_map<uint64_t, LeftSocket> left_;  // By session. Each has at least one of UnreadLimits::in_flight_max.
};

}  // namespace tier::session
