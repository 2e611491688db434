// UnopenedReservations: jobs that are reserved for users and that are not open: they could not be opened at the start,
// as a quota or the arena is smaller than it was; or a first run that resumes had them closed, and is not open itself
// yet. They stay in the file, their first run gets their terms, and they are tried again from time to time.
//
// Engine thread only. Invariant: each is due at one time; no job of such a uid and name is open, but one that is being
// resumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/session/reservation_file.h"

namespace tier::session {

// How long the run that had a reserved job closed has time to open its own, and a job that is being closed to be so.
inline constexpr base::Duration kReservationRetry = std::chrono::seconds(10);
// Of those that were refused.
inline constexpr base::Duration kRefusedReservationRetry = std::chrono::seconds(60);
inline constexpr size_t kReservationsTriedPerTurnMax = 16;

class UnopenedReservations {
 public:
  // In place of the one with this uid and name. `why`: it is not open.
  void Add(const Reservation& reservation, base::TimePoint due, std::string why);
  // False: there was none.
  bool Remove(uint32_t uid, const std::string& name);
  // The first ones that are due, which are due again at `next`; at most kReservationsTriedPerTurnMax.
  std::vector<Reservation> TakeDue(base::TimePoint now, base::TimePoint next);
  std::optional<base::TimePoint> next_due() const;

  const Reservation* Find(uint32_t uid, const std::string& name) const;
  size_t CountOf(uint32_t uid) const;
  size_t size() const { return waiting_.size(); }
  std::vector<Reservation> List() const;
  uint64_t version() const { return version_; }  // Rises with each change of the list.
  template <typename Visit>
  void ForEach(Visit visit) const {  // visit(reservation, why)
    for (const auto& [key, waiting] : waiting_) visit(waiting.reservation, waiting.why);
  }

 private:
  using Key = std::pair<uint32_t, std::string>;
  struct Waiting {
    Reservation reservation;
    base::TimePoint due;
    std::string why;
  };
  void SetDue(std::map<Key, Waiting>::iterator waiting, base::TimePoint due);

  std::map<Key, Waiting> waiting_;  // At most kReservationsMax, as JobService sees to.
  std::set<std::pair<base::TimePoint, Key>> due_;
  uint64_t version_ = 0;
};

}  // namespace tier::session
