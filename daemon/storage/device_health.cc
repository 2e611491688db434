// See device_health.h.
#include "daemon/storage/device_health.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::storage {
namespace {

bool SaysGone(int error) { return error == ENODEV || error == ENXIO || error == ENOMEDIUM; }

}  // namespace

const char* DeviceStateName(DeviceState state) {
  switch (state) {
    case DeviceState::kOnline: return "online";
    case DeviceState::kSuspect: return "suspect";
    case DeviceState::kOffline: return "offline";
    case DeviceState::kGone: return "gone";
  }
  return "unknown";
}

bool IsMediaError(int error) {
  return error == EIO || error == ENODATA || error == EILSEQ || error == EREMOTEIO || error == EBADMSG;
}

std::string DeviceHealth::ErrorText() const {
  if (state_ == DeviceState::kOnline) return {};
  if (error_ != 0) return std::strerror(error_);
  const auto silence = state_ == DeviceState::kSuspect ? kSilenceSuspect : kSilenceOffline;
  return fmt::format("nothing came back for {} s", std::chrono::duration_cast<std::chrono::seconds>(silence).count());
}

void DeviceHealth::Enter(DeviceState state, base::TimePoint now) {
  state_ = state;
  since_ = now;
}

void DeviceHealth::Suspect(int error, base::TimePoint now) {
  if (state_ == DeviceState::kSuspect && !probe_at_) probe_at_ = now;  // It answered before: does it still?
  if (state_ != DeviceState::kOnline) return;
  Enter(DeviceState::kSuspect, now);
  error_ = error;
  probes_failed_ = 0;
  probe_at_ = now;
}

void DeviceHealth::GoOffline(base::TimePoint now) {
  Enter(DeviceState::kOffline, now);
  probe_delay_ = kOfflineProbeMin;
  probe_at_ = now + probe_delay_;
}

void DeviceHealth::TrustIfCleared(base::TimePoint now) {
  if (state_ != DeviceState::kSuspect || writes_fail_ || reads_fail_ || silent_) return;
  Enter(DeviceState::kOnline, now);
  error_ = 0;
}

void DeviceHealth::NoteHeard(base::TimePoint now) {
  heard_at_ = now;
  silent_ = false;
}

void DeviceHealth::OnStarted(Direction direction, base::TimePoint now) {
  if (under_way_++ == 0) heard_at_ = now;
  if (state_ == DeviceState::kSuspect && direction == Direction::kWrite) trial_under_way_ = true;
}

void DeviceHealth::NoteBack(Direction direction, base::TimePoint now) {
  TIER_CHECK(under_way_ != 0, "a transfer ended, {} under way", under_way_);
  --under_way_;
  if (direction == Direction::kWrite) trial_under_way_ = false;
  NoteHeard(now);
}

void DeviceHealth::OnEndedUnjudged(Direction direction, base::TimePoint now) {
  NoteBack(direction, now);
  TrustIfCleared(now);
}

void DeviceHealth::OnEnded(Direction direction, int error, base::TimePoint now) {
  NoteBack(direction, now);
  const bool write = direction == Direction::kWrite;
  bool& fails = write ? writes_fail_ : reads_fail_;
  fails = error != 0;
  if (error == 0) {
    if (write) trial_delay_ = kTrialMin;
    return TrustIfCleared(now);
  }
  if (write) {
    // Those that were under way when the first one failed are no trials of their own.
    if (now >= trial_at_) {
      trial_at_ = now + trial_delay_;
      trial_delay_ = std::min(2 * trial_delay_, kTrialMax);
    }
  }
  Suspect(error, now);
}

void DeviceHealth::OnProbeStarted(base::TimePoint now) {
  TIER_CHECK(!probe_under_way_, "a probe is under way, {} failed", probes_failed_);
  probe_under_way_ = true;
  if (under_way_ == 0) heard_at_ = now;
}

void DeviceHealth::OnProbeEnded(int error, base::TimePoint now) {
  TIER_CHECK(probe_under_way_, "a probe ended, {} failed", probes_failed_);
  probe_under_way_ = false;
  NoteHeard(now);
  if (state_ == DeviceState::kGone) return;
  if (error == 0) {
    probes_failed_ = 0;
    reads_fail_ = false;
    if (state_ == DeviceState::kOffline) {
      Enter(DeviceState::kSuspect, now);
      writes_fail_ = true;  // Until one succeeds.
      trial_at_ = now;
    }
    probe_at_.reset();  // It answers. What is left is for a write to tell.
    return TrustIfCleared(now);
  }
  if (SaysGone(error)) {
    error_ = error;
    return Enter(DeviceState::kGone, now);
  }
  if (state_ == DeviceState::kOffline) {
    probe_delay_ = std::min(2 * probe_delay_, kOfflineProbeMax);
    probe_at_ = now + probe_delay_;
    return;
  }
  ++probes_failed_;
  probe_at_ = now + kProbeAgain;
  if (state_ == DeviceState::kSuspect && probes_failed_ >= kProbesBeforeOffline) GoOffline(now);
}

void DeviceHealth::OnTime(base::TimePoint now) {
  if (under_way_ == 0) return;
  if (now - heard_at_ >= kSilenceSuspect && state_ == DeviceState::kOnline) {
    Suspect(0, now);
    silent_ = true;
  }
  // And has had the rest of that time as a suspect: the daemon itself may have been stopped.
  const bool waited = now - since_ >= kSilenceOffline - kSilenceSuspect;
  if (state_ == DeviceState::kSuspect && waited && now - heard_at_ >= kSilenceOffline) GoOffline(now);
}

bool DeviceHealth::TakesWrites(base::TimePoint now) const {
  if (state_ == DeviceState::kOnline) return true;
  return state_ == DeviceState::kSuspect && !silent_ && !trial_under_way_ && now >= trial_at_;
}

std::optional<base::TimePoint> DeviceHealth::ProbeAt() const {
  const bool doubted = state_ == DeviceState::kSuspect || state_ == DeviceState::kOffline;
  if (!doubted || probe_under_way_) return std::nullopt;
  return probe_at_;
}

std::optional<base::TimePoint> DeviceHealth::NextDeadline(base::TimePoint now) const {
  std::optional<base::TimePoint> next = ProbeAt();
  const auto consider = [&next](base::TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (state_ == DeviceState::kSuspect && !silent_ && !trial_under_way_ && trial_at_ > now) consider(trial_at_);
  if (under_way_ == 0) return next;
  if (state_ == DeviceState::kOnline) consider(heard_at_ + kSilenceSuspect);
  if (state_ == DeviceState::kSuspect) {
    consider(std::max(heard_at_ + kSilenceOffline, since_ + (kSilenceOffline - kSilenceSuspect)));
  }
  return next;
}

}  // namespace tier::storage
