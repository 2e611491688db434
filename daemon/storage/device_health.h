// DeviceHealth: what is known of one device from how its transfers end, and what may be asked of it. Pure: it is told
// what happened and when, and makes no call.
//
//   online   it takes everything.
//   suspect  something failed and nothing has succeeded since, or nothing came back for a while. It is read, and takes
//            one write at a time, later after each failure, until one succeeds; a probing read tells whether it answers
//            at all.
//   offline  it does not answer: probes failed one after the other, or hang with all the rest. It takes nothing; a
//            probe that succeeds makes it suspect.
//   gone     it answered that it is no more. It is probed now and then: some come back under the same descriptor.
//
// One thread. The idea is a circuit breaker's: the trial write is its half-open state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/storage/transfer.h"

namespace tier::storage {

enum class DeviceState : uint8_t { kOnline, kSuspect, kOffline, kGone };
const char* DeviceStateName(DeviceState state);  // "online" …
// It does not answer.
constexpr bool IsAway(DeviceState state) { return state == DeviceState::kOffline || state == DeviceState::kGone; }
// The error may be of a place. The others are of the device, of the way to it, or of the file system beneath.
bool MayBeOfAPlace(int error);

inline constexpr uint32_t kProbesBeforeOffline = 3;                                 // That fail one after the other.
inline constexpr base::Duration kProbeAgain = std::chrono::milliseconds(100);       // While it is suspect.
inline constexpr base::Duration kOfflineProbeMin = std::chrono::milliseconds(250);  // While it is offline: doubles …
inline constexpr base::Duration kOfflineProbeMax = std::chrono::seconds(5);         // … up to this.
inline constexpr base::Duration kGoneProbe = std::chrono::seconds(60);
inline constexpr base::Duration kTrialMin = std::chrono::milliseconds(5);    // Between failed trial writes:
inline constexpr base::Duration kTrialMax = std::chrono::seconds(2);         // doubles up to this.
inline constexpr base::Duration kSilenceSuspect = std::chrono::seconds(10);  // Nothing came back …
inline constexpr base::Duration kSilenceOffline = std::chrono::seconds(30);  // … though something is under way.

class DeviceHealth {
 public:
  // A transfer or a probe was handed to the device.
  void OnStarted(Direction direction, base::TimePoint now);
  void OnProbeStarted(base::TimePoint now);
  // It came back. `error`: errno; 0: the device did what it was asked to.
  void OnEnded(Direction direction, int error, base::TimePoint now);
  void OnEndedUnjudged(Direction direction, base::TimePoint now);  // The device had no part in how it ended.
  void OnProbeEnded(int error, base::TimePoint now);
  // Time has passed: silence makes it suspect, then offline.
  void OnTime(base::TimePoint now);

  DeviceState state() const { return state_; }
  base::TimePoint since() const { return since_; }  // Of the state. REQUIRES: not online since the start.
  // Why it is in this state: "Input/output error", "nothing came back for 10 s". Empty: it is online.
  std::string ErrorText() const;
  // Time changes nothing.
  bool quiet() const { return state_ == DeviceState::kOnline && reads_.under_way == 0 && writes_.under_way == 0; }
  bool silent() const { return reads_.silent || writes_.silent; }  // What is under way there may stay so.
  bool reads_fail() const { return reads_.fails; }  // Nothing could be read since a read failed, by a probe either.
  // For how long nothing has come back though something is under way.
  base::Duration SilenceOf(Direction direction, base::TimePoint now) const {
    const Way& way = direction == Direction::kWrite ? writes_ : reads_;
    return way.under_way == 0 ? base::Duration{0} : now - way.heard_at;
  }
  bool TakesWrites(base::TimePoint now) const;
  bool TakesReads() const { return state_ == DeviceState::kOnline || state_ == DeviceState::kSuspect; }
  bool ProbeDue(base::TimePoint now) const { return ProbeAt() && now >= *ProbeAt(); }
  // When OnTime, a probe or a trial is due next, whichever comes first. None: there is nothing to wait for.
  std::optional<base::TimePoint> NextDeadline(base::TimePoint now) const;

 private:
  struct Way {  // Of one direction.
    uint32_t under_way = 0;
    base::TimePoint heard_at;  // Something came back, or the first of what is under way was handed over.
    bool fails = false;        // Nothing has succeeded since something failed.
    bool silent = false;       // Nothing came back for kSilenceSuspect.
  };
  Way& WayOf(Direction direction) { return direction == Direction::kWrite ? writes_ : reads_; }
  std::optional<base::TimePoint> ProbeAt() const;
  void Enter(DeviceState state, base::TimePoint now, int error);
  void Suspect(int error, base::TimePoint now);
  void GoOffline(base::TimePoint now, int error);
  void TrustIfCleared(base::TimePoint now);
  void NoteBack(Direction direction, base::TimePoint now);
  void LookAt(Way& way, base::TimePoint now);

  DeviceState state_ = DeviceState::kOnline;
  base::TimePoint since_;
  int error_ = 0;  // 0: silence.
  Way reads_;
  Way writes_;

  bool probe_under_way_ = false;
  bool probe_answered_ = false;  // Since it became suspect.
  uint32_t probes_failed_ = 0;
  std::optional<base::TimePoint> probe_at_;
  base::Duration probe_delay_ = kOfflineProbeMin;

  bool trial_under_way_ = false;
  base::TimePoint trial_at_;
  base::Duration trial_delay_ = kTrialMin;
};

}  // namespace tier::storage
