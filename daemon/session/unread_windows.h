// UnreadWindows: how many descriptors each session was sent and has not received, and which session must end when
// others wait because of that.
//
// The kernel counts descriptors on their way against the user that sends them, which is the daemon, and refuses all
// beyond its open-file limit. Without a bound, the unread windows of one user would stop the windows and the attaches
// of every other. So one user may have an eighth of what the other users leave of `in_flight_max`, and always one
// packet. A session that reads nothing for `patience` while another waits because of it is named, to be ended. A
// descriptor stays on its way after the session's end, until the client reads it or closes its socket: the session
// stays here until then.
//
// Invariants: unread_of(uid) == the sum over its sessions; total() == the sum over users. Pure: time and counts are
// passed in. Socket thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "daemon/base/time.h"

namespace tier::session {

// Packets that one session may leave unread: the size of its socket's buffer (LimitUnreadPackets).
inline constexpr size_t kPacketsUnreadMax = 64;

struct UnreadLimits {
  size_t in_flight_max = 4096;  // Descriptors on their way to all clients.
  base::Duration patience = std::chrono::seconds(5);
};

class UnreadWindows {
 public:
  explicit UnreadWindows(const UnreadLimits& limits);

  void Add(uint64_t session, uint32_t uid, base::TimePoint now);
  // Its client has read everything, or has closed its socket. Without effect if it is not here.
  void Remove(uint64_t session);
  void OnSent(uint64_t session, size_t descriptors, base::TimePoint now);
  // What the kernel says of the session's socket. Fewer than before, or none: the client reads.
  void OnCounted(uint64_t session, size_t packets, base::TimePoint now);

  // Whether the user may be sent so many more. A user with nothing unread always may.
  bool HasRoom(uint32_t uid, size_t descriptors) const;
  // Descriptors that the user may have unread at present.
  size_t ShareOf(uint32_t uid) const;
  // Whether the session has read nothing for `patience` while packets of its own wait.
  bool IsStalled(uint64_t session, base::TimePoint now) const;
  // Of a user's sessions that have read nothing for `patience`, the one with the most unread.
  std::optional<uint64_t> StalledOfUser(uint32_t uid, base::TimePoint now) const;
  // The session is being ended, and is not named again.
  void SetEnding(uint64_t session);

  bool contains(uint64_t session) const { return sessions_.contains(session); }
  size_t unread(uint64_t session) const;
  size_t unread_of(uint32_t uid) const;
  size_t total() const { return total_; }
  void CheckInvariants() const;

 private:
  struct Entry {
    uint32_t uid = 0;
    size_t unread = 0;
    base::TimePoint last_read;  // Or: since when there is something to read.
    bool ending = false;
  };
  bool Stalled(const Entry& entry, base::TimePoint now) const;
  const Entry& Find(uint64_t session) const;
  Entry& Find(uint64_t session) { return const_cast<Entry&>(std::as_const(*this).Find(session)); }
  void Set(Entry* entry, size_t unread);

  const UnreadLimits limits_;
  std::unordered_map<uint64_t, Entry> sessions_;
  std::map<uint32_t, size_t> of_uid_;  // Users with something unread.
  size_t total_ = 0;
};

}  // namespace tier::session
