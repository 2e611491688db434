// UidQuota: a number of units (sessions, handshakes) that users share. It counts how many each user holds, and limits
// one user, so that others find room however many that user asks for.
//
// Invariants: taken() == the sum over users of HeldBy; taken() <= max() and HeldBy(uid) <= of_one_max(), except for
// what was taken before SetMax lowered them. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace tier::session {

// The limit of one user where no option sets it: seven eighths, as a launch of many ranks is one user's, and no attack.
constexpr size_t PerUidLimit(size_t max) { return max - max / 8; }

class UidQuota {
 public:
  // REQUIRES: 0 < of_one_max <= max.
  UidQuota(size_t max, size_t of_one_max) { SetMax(max, of_one_max); }
  // REQUIRES: the same. What is taken stays so, also beyond it.
  void SetMax(size_t max, size_t of_one_max);

  // The user because of whom `uid` cannot have one more: `uid` itself at its own limit; where all are taken, the user
  // that holds most. None: there is room.
  std::optional<uint32_t> OverQuotaUid(uint32_t uid) const;
  void Take(uint32_t uid);  // REQUIRES: !OverQuotaUid(uid).
  void Give(uint32_t uid);  // REQUIRES: HeldBy(uid) > 0.

  size_t HeldBy(uint32_t uid) const;
  size_t taken() const { return taken_; }
  size_t max() const { return max_; }
  size_t of_one_max() const { return of_one_max_; }

 private:
  size_t max_ = 0;
  size_t of_one_max_ = 0;
  size_t taken_ = 0;
  std::map<uint32_t, size_t> held_;  // Users that hold some, at most max_.
};

}  // namespace tier::session
