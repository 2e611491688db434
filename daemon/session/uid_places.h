// UidPlaces: places that users share. Counts who holds how many, and keeps some from any one user, so that the others
// find room however many it asks for.
//
// Invariants: taken() == the sum over users of HeldBy <= max(); HeldBy(uid) <= of_one_max(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace tier::session {

// What one user may hold where nothing else says so: a launch of many ranks is one user's, and no attack.
constexpr size_t AllButAnEighth(size_t places) { return places - places / 8; }

class UidPlaces {
 public:
  // REQUIRES: 0 < of_one_max <= max.
  UidPlaces(size_t max, size_t of_one_max);

  // Who stands in the way of one more place for `uid`: itself at its own limit; where no place is left, whoever holds
  // most. Nobody: there is room.
  std::optional<uint32_t> Crowder(uint32_t uid) const;
  void Take(uint32_t uid);  // REQUIRES: !Crowder(uid).
  void Give(uint32_t uid);  // REQUIRES: HeldBy(uid) > 0.

  size_t HeldBy(uint32_t uid) const;
  size_t taken() const { return taken_; }
  size_t max() const { return max_; }
  size_t of_one_max() const { return of_one_max_; }

 private:
  const size_t max_;
  const size_t of_one_max_;
  size_t taken_ = 0;
  std::map<uint32_t, size_t> held_;  // Users with places, at most max_.
};

}  // namespace tier::session
