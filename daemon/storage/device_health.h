// DeviceHealth: what is known of one device from how its transfers end, and what may be asked of it. Pure: it is told
// what happened and when, and makes no call.
//
//   online   it takes everything.
//   suspect  something failed and nothing has succeeded since. It is read, and takes one write at a time, later after
//            each failure, until one succeeds; a probing read tells whether it answers at all.
//   offline  it does not answer: probes failed one after the other, or nothing came back for a long time. It takes
//            nothing; a probe that succeeds makes it suspect.
//   gone     it answered that it is no more. Nothing brings it back to this run.
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
// The error may be of a place on the medium. Others are of the device, or of the way to it.
bool IsMediaError(int error);

inline constexpr uint32_t kProbesBeforeOffline = 3;                                 // That fail one after the other.
inline constexpr base::Duration kProbeAgain = std::chrono::milliseconds(100);       // While it is suspect.
inline constexpr base::Duration kOfflineProbeMin = std::chrono::milliseconds(250);  // While it is offline: doubles …
inline constexpr base::Duration kOfflineProbeMax = std::chrono::seconds(5);         // … up to this.
inline constexpr base::Duration kTrialMin = std::chrono::milliseconds(5);           // Between failed trial writes:
inline constexpr base::Duration kTrialMax = std::chrono::seconds(2);                // doubles up to this.
inline constexpr base::Duration kSilenceSuspect = std::chrono::seconds(10);         // Nothing came back …
inline constexpr base::Duration kSilenceOffline = std::chrono::seconds(30);         // … though something is under way.

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
  // Of what made it leave `online`: "Input/output error", "nothing came back for 10 s". Empty: it is online.
  std::string ErrorText() const;
  bool quiet() const { return state_ == DeviceState::kOnline && under_way_ == 0; }  // Time changes nothing.
  bool TakesWrites(base::TimePoint now) const;
  bool TakesReads() const { return state_ == DeviceState::kOnline || state_ == DeviceState::kSuspect; }
  bool ProbeDue(base::TimePoint now) const { return ProbeAt() && now >= *ProbeAt(); }
  // When OnTime, a probe or a trial is due next, whichever comes first. None: there is nothing to wait for.
  std::optional<base::TimePoint> NextDeadline(base::TimePoint now) const;

 private:
  std::optional<base::TimePoint> ProbeAt() const;
  void Enter(DeviceState state, base::TimePoint now);
  void Suspect(int error, base::TimePoint now);
  void GoOffline(base::TimePoint now);
  void TrustIfCleared(base::TimePoint now);
  void NoteHeard(base::TimePoint now);
  void NoteBack(Direction direction, base::TimePoint now);

  DeviceState state_ = DeviceState::kOnline;
  base::TimePoint since_;
  int error_ = 0;
  bool writes_fail_ = false;  // No write has succeeded since one failed.
  bool reads_fail_ = false;
  bool silent_ = false;  // Suspect because nothing came back.

  uint32_t under_way_ = 0;
  base::TimePoint heard_at_;  // Something came back, or the first of what is under way was handed over.

  bool probe_under_way_ = false;
  uint32_t probes_failed_ = 0;
  std::optional<base::TimePoint> probe_at_;
  base::Duration probe_delay_ = kOfflineProbeMin;

  bool trial_under_way_ = false;
  base::TimePoint trial_at_;
  base::Duration trial_delay_ = kTrialMin;
};

}  // namespace tier::storage
