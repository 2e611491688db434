// UnreadWindows: how many packets with descriptors each session has been sent and has not read, and who has to go when
// others wait because of that.
//
// The kernel counts descriptors on their way against the user that sends them, which is the daemon, and refuses all
// beyond its open-file limit: without a bound, the unread windows of one user would stop the windows and the attaches
// of every other. So a user's sessions may leave of_one_uid_max unread, together. A session that reads nothing for
// `patience` while somebody waits for it to read is named, to be ended.
//
// Invariant: unread_of(uid) == the sum over its sessions. Pure: time and counts are passed in. Socket thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "daemon/base/time.h"

namespace tier::session {

// Packets that one session may leave unread: the size of its socket's buffer (LimitUnreadPackets).
inline constexpr size_t kPacketsUnreadMax = 64;

struct UnreadLimits {
  size_t of_one_uid_max = 8 * kPacketsUnreadMax;
  base::Duration patience = std::chrono::seconds(5);
  base::Duration shortage_patience = std::chrono::seconds(1);  // When nobody can be sent a descriptor any more.
};

class UnreadWindows {
 public:
  explicit UnreadWindows(const UnreadLimits& limits);

  void Add(uint64_t session, uint32_t uid, base::TimePoint now);
  void Remove(uint64_t session);  // Without effect if it is not here.
  void OnSent(uint64_t session, base::TimePoint now);
  // What the kernel says of the session's socket. Fewer than before, or none: the client reads.
  void OnCounted(uint64_t session, size_t unread, base::TimePoint now);

  // Whether the session's user may be sent one more.
  bool HasRoom(uint64_t session) const { return HasRoomOf(sessions_.at(session).uid); }
  // Whether it has read nothing for as long as it may while packets of its own wait.
  bool IsStalled(uint64_t session, base::TimePoint now) const;
  // Of those that have read nothing for as long as they may, the session with the most unread: of a user without room,
  // or of all when nobody can be sent a descriptor any more.
  std::optional<uint64_t> StalledOfUser(uint32_t uid, base::TimePoint now) const;
  std::optional<uint64_t> StalledInShortage(base::TimePoint now) const;
  // It is being ended, and named no more.
  void SetEnding(uint64_t session);

  size_t unread(uint64_t session) const;
  size_t unread_of(uint32_t uid) const;
  const UnreadLimits& limits() const { return limits_; }
  void CheckInvariants() const;

 private:
  struct Entry {
    uint32_t uid = 0;
    size_t unread = 0;
    base::TimePoint last_read;  // Or: since when there is something to read.
    bool ending = false;
  };
  bool HasRoomOf(uint32_t uid) const { return unread_of(uid) < limits_.of_one_uid_max; }
  static bool Stalled(const Entry& entry, base::Duration patience, base::TimePoint now);
  void Set(Entry* entry, size_t unread);
  template <typename Counts>
  std::optional<uint64_t> MostUnread(const Counts& counts) const;

  const UnreadLimits limits_;
  std::unordered_map<uint64_t, Entry> sessions_;
  std::map<uint32_t, size_t> of_uid_;  // Users with something unread.
};

}  // namespace tier::session
