// RingWatch: the sessions whose rings the engine looks at in a pass. These are the sessions with a message a moment
// ago; all others ring their doorbell when they publish a message, so that a silent session costs nothing.
//
// A session is *watched* while it is in the list that each pass goes through: its client needs to ring only when the
// engine page says that the engine sleeps. Otherwise RingControl::consumer_waiting of its request ring is set, and its
// client rings whatever the page says. A doorbell that is rung without a message, when its user's sessions have done so
// too often (bell_limit.h), is *muted*: it does not wake the engine for a while, and then its ring is looked at once.
//
// Releases need no bell while the page says kSleepingPatiently (proto/ring.h), so the rings of sessions that were
// granted leases and are not watched are swept, some in each pass, before the page stops saying so and every
// kReleaseLatenessMaxMs.
//
// Invariants: a watched session is in the list once; a muted one has a time at which it is heard again. Engine thread
// only. No allocation in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/session/bell_limit.h"
#include "daemon/session/poller.h"
#include "daemon/session/ring_port.h"

namespace tier::session {

// A session that has not been heard for this long has to ring again.
inline constexpr base::Duration kWatchTime = std::chrono::milliseconds(10);
inline constexpr size_t kSweptPerPass = 64;
inline constexpr base::Duration kSweepInterval = std::chrono::milliseconds(proto::kReleaseLatenessMaxMs);

// What RingWatch keeps of a session. Its address does not change while it is watched.
struct WatchedRing {
  WatchedRing(uint32_t user, proto::FileDescriptor bell, RingPort ring)
      : uid(user), doorbell(std::move(bell)), port(std::move(ring)) {}

  const uint32_t uid;
  proto::FileDescriptor doorbell;
  RingPort port;

  // RingWatch's own.
  static constexpr size_t kNowhere = SIZE_MAX;
  size_t watched_at = kNowhere;     // Index in the list of those watched.
  size_t swept_at = kNowhere;       // Index in the list of those that may hold leases.
  base::TimePoint heard;            // Last message or answer.
  BellLimit* bell_limit = nullptr;  // Shared with the user's other sessions.
  std::optional<base::TimePoint> muted_until;
};

class RingWatch {
 public:
  explicit RingWatch(Poller& poller) : poller_(poller) {}

  // Its client has to ring from now on. IO_ERROR: its doorbell cannot be waited for.
  Status Add(WatchedRing* ring);
  void Remove(WatchedRing* ring);

  // Its doorbell was rung.
  void OnRung(WatchedRing* ring, base::TimePoint now);
  // It was sent an answer, perhaps with leases: it is likely to ask again soon.
  void OnAnswered(WatchedRing* ring, bool leases, base::TimePoint now);
  // Its answers were published: there is room for more.
  void OnPublished(WatchedRing* ring, base::TimePoint now) { Watch(ring, now); }
  // `messages` were taken from it.
  void OnReceived(WatchedRing* ring, uint32_t messages, base::TimePoint now);

  // Ends mutes whose time has come and goes on with a sweep. Returns how many rings to look at in this pass.
  size_t BeginPass(base::TimePoint now);
  // The i-th of them; each pass begins with another. REQUIRES: none was removed since BeginPass.
  WatchedRing* Next(size_t i) const { return watched_[(first_ + i) % pass_count_]; }
  // Takes those that were not heard for kWatchTime out of the list.
  void EndPass(base::TimePoint now);

  // Whether a watched ring has a message: the last look before the engine sleeps.
  bool HasRequests();
  // The page says kSleepingPatiently: from here on releases may lie in rings that are not watched.
  void OnPatientSleep() { releases_may_lie_ = true; }
  // Whether a sweep is under way.
  bool sweeping() const { return sweep_.has_value(); }
  // Looks for these now. True until it is done.
  bool SweepBeforeSleep(base::TimePoint now);

  // Whether every session is watched: then no doorbell means anything while the engine is awake.
  bool all_watched() const { return watched_.size() == count_; }
  std::optional<base::TimePoint> NextUnmute() const;
  uint64_t polls() const { return polls_; }  // At rings, all in all.
  uint64_t mutes() const { return mutes_; }
  void CheckInvariants() const;

 private:
  void Watch(WatchedRing* ring, base::TimePoint now);
  void Unwatch(WatchedRing* ring);
  void Mute(WatchedRing* ring, base::TimePoint now);
  bool Look(const WatchedRing& ring);
  void StartSweep(base::TimePoint now);
  void Sweep(base::TimePoint now);

  struct User {
    BellLimit bell_limit;
    size_t sessions = 0;
  };

  Poller& poller_;
  size_t count_ = 0;
  std::unordered_map<uint32_t, User> users_;  // Of the sessions that are here. Its elements keep their addresses.
  std::vector<WatchedRing*> watched_;
  std::vector<WatchedRing*> leaseholders_;  // Were granted leases; some may have ended.
  std::vector<WatchedRing*> muted_;
  size_t first_ = 0;       // Of this pass.
  size_t pass_count_ = 0;  // Those watched when it began.
  bool releases_may_lie_ = false;
  std::optional<size_t> sweep_;  // Under way: the next index in leaseholders_.
  base::TimePoint sweep_began_{base::Duration::min() / 2};
  uint64_t polls_ = 0;
  uint64_t mutes_ = 0;
};

}  // namespace tier::session
