#include "daemon/session/unread_windows.h"

#include "daemon/base/check.h"

namespace tier::session {

UnreadWindows::UnreadWindows(const UnreadLimits& limits) : limits_(limits) {
  TIER_CHECK(limits.of_one_uid_max > 0, "no user may have anything unread");
}

void UnreadWindows::Add(uint64_t session, uint32_t uid, base::TimePoint now) {
  const bool fresh = sessions_.emplace(session, Entry{.uid = uid, .last_read = now}).second;
  TIER_CHECK(fresh, "session {} twice", session);
}

void UnreadWindows::Remove(uint64_t session) {
  const auto place = sessions_.find(session);
  if (place == sessions_.end()) return;
  Set(&place->second, 0);
  sessions_.erase(place);
}

void UnreadWindows::Set(Entry* entry, size_t unread) {
  size_t& sum = of_uid_[entry->uid];
  TIER_CHECK(sum >= entry->unread, "uid {} has {} unread, a session of it {}", entry->uid, sum, entry->unread);
  sum += unread - entry->unread;
  if (sum == 0) of_uid_.erase(entry->uid);
  entry->unread = unread;
}

void UnreadWindows::OnSent(uint64_t session, base::TimePoint now) {
  TIER_CHECK(sessions_.contains(session), "session {} is not counted", session);
  Entry& entry = sessions_.at(session);
  if (entry.unread == 0) entry.last_read = now;
  Set(&entry, entry.unread + 1);
}

void UnreadWindows::OnCounted(uint64_t session, size_t unread, base::TimePoint now) {
  TIER_CHECK(sessions_.contains(session), "session {} is not counted", session);
  Entry& entry = sessions_.at(session);
  if (unread >= entry.unread) return;  // Packets without descriptors are among what the kernel counts.
  entry.last_read = now;
  Set(&entry, unread);
}

bool UnreadWindows::Stalled(const Entry& entry, base::Duration patience, base::TimePoint now) {
  return entry.unread > 0 && !entry.ending && now - entry.last_read >= patience;
}

template <typename Counts>
std::optional<uint64_t> UnreadWindows::MostUnread(const Counts& counts) const {
  std::optional<uint64_t> most;
  for (const auto& [session, entry] : sessions_) {
    if (counts(entry) && (!most || entry.unread > sessions_.at(*most).unread)) most = session;
  }
  return most;
}

bool UnreadWindows::IsStalled(uint64_t session, base::TimePoint now) const {
  return Stalled(sessions_.at(session), limits_.patience, now);
}

std::optional<uint64_t> UnreadWindows::StalledOfUser(uint32_t uid, base::TimePoint now) const {
  if (HasRoomOf(uid)) return std::nullopt;
  return MostUnread([&](const Entry& entry) { return entry.uid == uid && Stalled(entry, limits_.patience, now); });
}

std::optional<uint64_t> UnreadWindows::StalledInShortage(base::TimePoint now) const {
  return MostUnread([&](const Entry& entry) { return Stalled(entry, limits_.shortage_patience, now); });
}

void UnreadWindows::SetEnding(uint64_t session) { sessions_.at(session).ending = true; }

size_t UnreadWindows::unread(uint64_t session) const { return sessions_.at(session).unread; }

size_t UnreadWindows::unread_of(uint32_t uid) const {
  const auto place = of_uid_.find(uid);
  return place == of_uid_.end() ? 0 : place->second;
}

void UnreadWindows::CheckInvariants() const {
  std::map<uint32_t, size_t> sums;
  for (const auto& [session, entry] : sessions_) {
    if (entry.unread > 0) sums[entry.uid] += entry.unread;
  }
  TIER_CHECK(sums == of_uid_, "{} users with unread packets, {} counted", of_uid_.size(), sums.size());
}

}  // namespace tier::session
