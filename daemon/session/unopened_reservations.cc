// See unopened_reservations.h.
#include "daemon/session/unopened_reservations.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace tier::session {

void UnopenedReservations::Add(const Reservation& reservation, base::TimePoint due, std::string why) {
  TIER_CHECK(!reservation.name.empty(), "a reserved job of uid {} has no name", reservation.uid);
  const auto [place, inserted] = waiting_.try_emplace(Key(reservation.uid, reservation.name));
  if (inserted || place->second.reservation != reservation) ++version_;
  place->second.reservation = reservation;
  place->second.why = std::move(why);
  SetDue(place, due);
}

void UnopenedReservations::SetDue(std::map<Key, Waiting>::iterator waiting, base::TimePoint due) {
  due_.erase({waiting->second.due, waiting->first});  // None of a new one.
  waiting->second.due = due;
  due_.emplace(due, waiting->first);
  TIER_CHECK(due_.size() == waiting_.size() && waiting_.size() <= kReservationsMax, "{} reservations wait, {} are due",
             waiting_.size(), due_.size());
}

bool UnopenedReservations::Remove(uint32_t uid, const std::string& name) {
  const auto gone = waiting_.extract(Key(uid, name));
  if (gone.empty()) return false;
  const size_t erased = due_.erase({gone.mapped().due, gone.key()});
  TIER_CHECK(erased == 1, "job '{}' of uid {} is due {} times", name, uid, erased);
  ++version_;
  return true;
}

std::vector<Reservation> UnopenedReservations::TakeDue(base::TimePoint now, base::TimePoint next) {
  TIER_CHECK(next > now, "{} reservations would be due at once again", due_.size());
  std::vector<Reservation> taken;
  while (!due_.empty() && due_.begin()->first <= now && taken.size() < kReservationsTriedPerTurnMax) {
    const auto waiting = waiting_.find(due_.begin()->second);
    taken.push_back(waiting->second.reservation);
    SetDue(waiting, next);
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
