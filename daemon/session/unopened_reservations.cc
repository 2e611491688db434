// See unopened_reservations.h.
#include "daemon/session/unopened_reservations.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::session {

void UnopenedReservations::Add(const Reservation& reservation, base::TimePoint due) {
  TIER_CHECK(!reservation.name.empty(), "a reserved job of uid {} has no name", reservation.uid);
  (void)Remove(reservation.uid, reservation.name);
  const Key key(reservation.uid, reservation.name);
  waiting_.emplace(key, Waiting{.reservation = reservation, .due = due});
  due_.emplace(due, key);
  TIER_CHECK(due_.size() == waiting_.size() && waiting_.size() <= kReservationsMax, "{} reservations wait, {} are due",
             waiting_.size(), due_.size());
}

bool UnopenedReservations::Remove(uint32_t uid, const std::string& name) {
  const auto gone = waiting_.extract(Key(uid, name));
  if (gone.empty()) return false;
  const size_t erased = due_.erase({gone.mapped().due, gone.key()});
  TIER_CHECK(erased == 1, "job '{}' of uid {} is due {} times", name, uid, erased);
  return true;
}

std::vector<Reservation> UnopenedReservations::TakeDue(base::TimePoint now, base::TimePoint next) {
  TIER_CHECK(next > now, "{} reservations would be due at once again", due_.size());
  std::vector<Reservation> taken;
  while (!due_.empty() && due_.begin()->first <= now && taken.size() < kReservationsTriedPerTurnMax) {
    taken.push_back(waiting_.at(due_.begin()->second).reservation);
    Add(taken.back(), next);
  }
  return taken;
}

std::optional<base::TimePoint> UnopenedReservations::next_due() const {
  return due_.empty() ? std::nullopt : std::optional(due_.begin()->first);
}

const Reservation* UnopenedReservations::Find(uint32_t uid, const std::string& name) const {
  const auto found = waiting_.find(Key(uid, name));
  return found == waiting_.end() ? nullptr : &found->second.reservation;
}

size_t UnopenedReservations::CountOf(uint32_t uid) const {
  const auto is_of = [uid](const auto& waiting) { return waiting.first.first == uid; };
  return static_cast<size_t>(std::ranges::count_if(waiting_, is_of));
}

std::vector<Reservation> UnopenedReservations::List() const {
  std::vector<Reservation> list;
  for (const auto& [key, waiting] : waiting_) list.push_back(waiting.reservation);
  return list;
}

}  // namespace tier::session
