// WriteBudget: how many bytes a day tierd may write to the SSD devices, all together, so that they do not wear out
// early (ssd.drive_writes_per_day). A token bucket in bytes: each write takes from it, and time fills it. While it is
// empty no write ahead of need begins, neither write-behind nor one that makes room for a prefetch. Three kinds of
// writes always begin: those that a request waits for, those that empty windows which another job or the host is owed,
// and what is moved off a device. These may take the bucket below zero, and writes ahead of need wait until that is
// paid back, at most kDebtTime long. Jobs that wait have turns of as many bytes each (budget_turns.h).
//
// Pure: time is passed in. Engine thread only. Invariant: -debt_max <= left() <= burst().
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/api/snapshot.h"
#include "proto/units.h"

namespace tier::tiering {

class WriteBudget {
 public:
  static constexpr base::Duration kDay = std::chrono::hours(24);
  static constexpr base::Duration kBurstTime = std::chrono::hours(1);  // A full bucket is what so much time brings …
  static constexpr base::Duration kDebtTime = std::chrono::hours(1);   // … and the largest debt.
  static constexpr uint64_t kBurstMin = 64 * kBlockSize;
  // Jobs that wait for the bucket look at it no more often.
  static constexpr base::Duration kLookAgain = std::chrono::milliseconds(10);
  static constexpr uint64_t kBytesPerDayMax = uint64_t{1} << 60;

  // 0: no budget.
  explicit WriteBudget(uint64_t bytes_per_day) : per_day_(std::min(bytes_per_day, kBytesPerDayMax)) {
    left_ = static_cast<int64_t>(burst());
  }
  // From now on; 0: no budget. What is saved up or owed stays, within the new limits. One that begins has a full
  // bucket.
  void SetPerDay(uint64_t bytes_per_day, base::TimePoint now) {
    const uint64_t next = std::min(bytes_per_day, kBytesPerDayMax);
    if (next == per_day_) return;
    const bool begins = !limits();
    if (!begins) Fill(now);
    per_day_ = next;
    const auto most = static_cast<int64_t>(burst());
    left_ = begins ? most : std::clamp(left_, limits() ? -static_cast<int64_t>(debt_max()) : int64_t{0}, most);
    filled_at_ = now;
    fraction_ = 0;
    look_at_.reset();  // Jobs that wait are looked at again now.
    empty_ = empty_ && limits();
  }

  bool limits() const { return per_day_ != 0; }
  // What a full bucket holds, in bytes.
  uint64_t burst() const { return limits() ? std::max(BytesIn(kBurstTime), kBurstMin) : 0; }
  uint64_t debt_max() const { return std::max(BytesIn(kDebtTime), kBurstMin); }

  // Another write ahead of need may begin. False: it may at NextLook.
  bool TakesAhead(base::TimePoint now) {
    if (!limits()) return true;
    Fill(now);
    if (left_ > 0) {
      empty_ = false;
      return true;
    }
    if (!std::exchange(empty_, true)) ++delays_;
    look_at_ = now + std::max(TimeFor(static_cast<uint64_t>(-left_) + kBlockSize), kLookAgain);
    return false;
  }
  // A write of any kind begins.
  void Note(uint64_t bytes, base::TimePoint now) {
    if (!limits()) return;
    Fill(now);
    TIER_CHECK(bytes <= kBytesPerDayMax, "a write of {} bytes", bytes);
    left_ = std::max(left_ - static_cast<int64_t>(bytes), -static_cast<int64_t>(debt_max()));
  }
  // When writes that were held back are to be tried again.
  std::optional<base::TimePoint> NextLook() const { return look_at_; }
  // True once, from that time on.
  bool TakeDue(base::TimePoint now) {
    if (!look_at_ || now < *look_at_) return false;
    look_at_.reset();
    return true;
  }
  // As of `now`: while nothing is written, nothing else counts what time brings.
  WriteBudgetFigures figures(base::TimePoint now) const {
    WriteBudget then = *this;
    if (limits()) then.Fill(now);
    return {.bytes_per_day = per_day_, .left_bytes = then.left_, .slowing = look_at_.has_value(), .delays = delays_};
  }
  int64_t left() const { return left_; }
  void CheckInvariants() const {
    TIER_CHECK(left_ <= static_cast<int64_t>(burst()), "{} of {} bytes", left_, burst());
    TIER_CHECK(!limits() || left_ >= -static_cast<int64_t>(debt_max()), "{} bytes, with a debt of {} at most", left_,
               debt_max());
    TIER_CHECK(fraction_ < static_cast<uint64_t>(kDay.count()), "a fraction of {}", fraction_);
  }

 private:
  uint64_t BytesIn(base::Duration time) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(per_day_) * static_cast<uint64_t>(time.count()) /
                                 static_cast<uint64_t>(kDay.count()));
  }
  base::Duration TimeFor(uint64_t bytes) const {
    const auto time = static_cast<unsigned __int128>(bytes) * static_cast<uint64_t>(kDay.count()) / per_day_;
    return base::Duration(
        static_cast<int64_t>(std::min(time, static_cast<unsigned __int128>(static_cast<uint64_t>(kDay.count())))));
  }
  // Exact: what is less than a byte is kept for the next time.
  void Fill(base::TimePoint now) {
    if (!filled_at_) filled_at_ = now;
    TIER_CHECK(now >= *filled_at_, "time goes back by {} ns", (*filled_at_ - now).count());
    const auto time = static_cast<uint64_t>((now - std::exchange(*filled_at_, now)).count());
    const unsigned __int128 parts = static_cast<unsigned __int128>(per_day_) * time + fraction_;
    const unsigned __int128 room = static_cast<unsigned __int128>(static_cast<int64_t>(burst()) - left_);
    const unsigned __int128 bytes = parts / static_cast<uint64_t>(kDay.count());
    const bool full = bytes >= room;
    left_ += static_cast<int64_t>(full ? room : bytes);
    fraction_ = full ? 0 : static_cast<uint64_t>(parts % static_cast<uint64_t>(kDay.count()));
  }

  uint64_t per_day_;       // Bytes. 0: no budget.
  int64_t left_ = 0;       // Bytes; negative: a debt.
  uint64_t fraction_ = 0;  // Of a byte, in parts of kDay nanoseconds.
  std::optional<base::TimePoint> filled_at_;
  std::optional<base::TimePoint> look_at_;
  bool empty_ = false;  // As writes ahead of need found it last.
  uint64_t delays_ = 0;
};

}  // namespace tier::tiering
