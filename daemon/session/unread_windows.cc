#include "daemon/session/unread_windows.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

constexpr size_t kUsersOfRoom = 8;  // One user may take one part in so many of what others leave.

}  // namespace

UnreadWindows::UnreadWindows(const UnreadLimits& limits) : limits_(limits) {
  TIER_CHECK(limits.in_flight_max >= kUsersOfRoom, "{} descriptors on their way", limits.in_flight_max);
}

const UnreadWindows::Entry& UnreadWindows::Find(uint64_t session) const {
  const auto place = sessions_.find(session);
  TIER_CHECK(place != sessions_.end(), "session {} is not counted", session);
  return place->second;
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
  TIER_CHECK(sum >= entry->unread && total_ >= sum, "uid {} has {} unread of {}, a session of it {}", entry->uid, sum,
             total_, entry->unread);
  sum += unread - entry->unread;
  total_ += unread - entry->unread;
  if (sum == 0) of_uid_.erase(entry->uid);
  entry->unread = unread;
}

void UnreadWindows::OnSent(uint64_t session, size_t descriptors, base::TimePoint now) {
  Entry& entry = Find(session);
  if (entry.unread == 0) entry.last_read = now;
  Set(&entry, entry.unread + descriptors);
}

void UnreadWindows::OnCounted(uint64_t session, size_t packets, base::TimePoint now) {
  Entry& entry = Find(session);
  if (packets >= entry.unread) return;  // Packets without descriptors are among what the kernel counts.
  entry.last_read = now;
  Set(&entry, packets);
}

size_t UnreadWindows::ShareOf(uint32_t uid) const {
  const size_t others = total_ - unread_of(uid);
  return (limits_.in_flight_max - std::min(others, limits_.in_flight_max)) / kUsersOfRoom;
}

bool UnreadWindows::HasRoom(uint32_t uid, size_t descriptors) const {
  const size_t unread = unread_of(uid);
  return unread == 0 || unread + descriptors <= ShareOf(uid);
}

bool UnreadWindows::Stalled(const Entry& entry, base::TimePoint now) const {
  return entry.unread > 0 && !entry.ending && now - entry.last_read >= limits_.patience;
}

bool UnreadWindows::IsStalled(uint64_t session, base::TimePoint now) const { return Stalled(Find(session), now); }

std::optional<uint64_t> UnreadWindows::StalledOfUser(uint32_t uid, base::TimePoint now) const {
  std::optional<uint64_t> most;
  for (const auto& [session, entry] : sessions_) {
    if (entry.uid != uid || !Stalled(entry, now)) continue;
    if (!most || entry.unread > Find(*most).unread) most = session;
  }
  return most;
}

void UnreadWindows::SetEnding(uint64_t session) { Find(session).ending = true; }

size_t UnreadWindows::unread(uint64_t session) const { return Find(session).unread; }

size_t UnreadWindows::unread_of(uint32_t uid) const {
  const auto place = of_uid_.find(uid);
  return place == of_uid_.end() ? 0 : place->second;
}

void UnreadWindows::CheckInvariants() const {
  std::map<uint32_t, size_t> sums;
  size_t total = 0;
  for (const auto& [session, entry] : sessions_) {
    total += entry.unread;
    if (entry.unread > 0) sums[entry.uid] += entry.unread;
  }
  TIER_CHECK(sums == of_uid_, "{} users with unread packets, {} counted", of_uid_.size(), sums.size());
  TIER_CHECK(total == total_, "{} unread, {} counted", total, total_);
}

}  // namespace tier::session
