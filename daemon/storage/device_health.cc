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

bool MayBeOfAPlace(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EPERM:
    case ENODEV:
    case ENXIO:
    case ENOMEDIUM:
    case ENOLINK:
    case ESHUTDOWN: return false;
    default: return true;
  }
}

std::string DeviceHealth::ErrorText() const {
  if (state_ == DeviceState::kOnline) return {};
  if (error_ != 0) return std::strerror(error_);
  const auto silence = state_ == DeviceState::kSuspect ? kSilenceSuspect : kSilenceOffline;
  return fmt::format("nothing came back for {} s", std::chrono::duration_cast<std::chrono::seconds>(silence).count());
}

void DeviceHealth::Enter(DeviceState state, base::TimePoint now, int error) {
  state_ = state;
  since_ = now;
  error_ = error;
}

void DeviceHealth::Suspect(int error, base::TimePoint now) {
  if (state_ == DeviceState::kSuspect && !probe_at_) probe_at_ = now;  // It answered before: does it still?
  if (state_ != DeviceState::kOnline) return;
  Enter(DeviceState::kSuspect, now, error);
  probes_failed_ = 0;
  probe_answered_ = false;
  probe_at_ = now;
}

void DeviceHealth::GoOffline(base::TimePoint now, int error) {
  Enter(DeviceState::kOffline, now, error);
  probe_delay_ = kOfflineProbeMin;
  probe_at_ = now + probe_delay_;
}

void DeviceHealth::TrustIfCleared(base::TimePoint now) {
  if (state_ != DeviceState::kSuspect || writes_.fails || reads_.fails || silent()) return;
  Enter(DeviceState::kOnline, now, 0);
}

void DeviceHealth::OnStarted(Direction direction, base::TimePoint now) {
  Way& way = WayOf(direction);
  if (way.under_way++ == 0) way.heard_at = now;
  if (state_ == DeviceState::kSuspect && direction == Direction::kWrite) trial_under_way_ = true;
}

void DeviceHealth::NoteBack(Direction direction, base::TimePoint now) {
  Way& way = WayOf(direction);
  TIER_CHECK(way.under_way != 0, "a transfer ended, {} reads and {} writes under way", reads_.under_way,
             writes_.under_way);
  --way.under_way;
  way.heard_at = now;
  way.silent = false;
  if (direction == Direction::kWrite) trial_under_way_ = false;
}

void DeviceHealth::OnEndedUnjudged(Direction direction, base::TimePoint now) {
  NoteBack(direction, now);
  TrustIfCleared(now);
}

void DeviceHealth::OnEnded(Direction direction, int error, base::TimePoint now) {
  NoteBack(direction, now);
  WayOf(direction).fails = error != 0;
  const bool write = direction == Direction::kWrite;
  if (error == 0) {
    if (write) trial_delay_ = kTrialMin;
    return TrustIfCleared(now);
  }
  // Those that were under way when the first one failed are no trials of their own.
  if (write && now >= trial_at_) {
    trial_at_ = now + trial_delay_;
    trial_delay_ = std::min(2 * trial_delay_, kTrialMax);
  }
  Suspect(error, now);
}

void DeviceHealth::OnProbeStarted(base::TimePoint /*now*/) {
  TIER_CHECK(!probe_under_way_, "a probe is under way, {} failed", probes_failed_);
  probe_under_way_ = true;
}

void DeviceHealth::OnProbeEnded(int error, base::TimePoint now) {
  TIER_CHECK(probe_under_way_, "a probe ended, {} failed", probes_failed_);
  probe_under_way_ = false;
  if (error == EAGAIN) {  // The system was short of something: that says nothing of the device.
    probe_at_ = now + kProbeAgain;
    return;
  }
  if (error == 0) {
    probes_failed_ = 0;
    probe_answered_ = true;
    reads_.fails = reads_.silent = false;
    reads_.heard_at = now;
    if (state_ == DeviceState::kOffline || state_ == DeviceState::kGone) {
      Enter(DeviceState::kSuspect, now, error_ == 0 ? ETIMEDOUT : error_);
      writes_.fails = true;  // Until one succeeds.
      trial_at_ = now;
    }
    probe_at_.reset();  // It answers. What is left is for a write to tell.
    return TrustIfCleared(now);
  }
  probe_answered_ = false;
  if (SaysGone(error)) {
    if (state_ != DeviceState::kGone) Enter(DeviceState::kGone, now, error);
    probe_at_ = now + kGoneProbe;
    return;
  }
  if (state_ == DeviceState::kGone) return GoOffline(now, error);
  if (state_ == DeviceState::kOffline) {
    probe_delay_ = std::min(2 * probe_delay_, kOfflineProbeMax);
    probe_at_ = now + probe_delay_;
    return;
  }
  ++probes_failed_;
  probe_at_ = now + kProbeAgain;
  if (state_ == DeviceState::kSuspect && probes_failed_ >= kProbesBeforeOffline) GoOffline(now, error);
}

void DeviceHealth::LookAt(Way& way, base::TimePoint now) {
  if (way.under_way == 0 || now - way.heard_at < kSilenceSuspect || way.silent) return;
  way.silent = true;
  Suspect(0, now);
}

void DeviceHealth::OnTime(base::TimePoint now) {
  LookAt(reads_, now);
  LookAt(writes_, now);
  // And has had the rest of that time as a suspect: the daemon itself may have been stopped.
  const bool waited = now - since_ >= kSilenceOffline - kSilenceSuspect;
  if (state_ == DeviceState::kSuspect && waited && silent() && !probe_answered_) GoOffline(now, 0);
}

bool DeviceHealth::TakesWrites(base::TimePoint now) const {
  if (state_ == DeviceState::kOnline) return true;
  return state_ == DeviceState::kSuspect && !silent() && !trial_under_way_ && now >= trial_at_;
}

std::optional<base::TimePoint> DeviceHealth::ProbeAt() const {
  if (state_ == DeviceState::kOnline || probe_under_way_) return std::nullopt;
  return probe_at_;
}

std::optional<base::TimePoint> DeviceHealth::NextDeadline(base::TimePoint now) const {
  std::optional<base::TimePoint> next = ProbeAt();
  const auto consider = [&next](base::TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (state_ == DeviceState::kSuspect) {
    if (!silent() && !trial_under_way_ && trial_at_ > now) consider(trial_at_);
    if (silent() && !probe_answered_) consider(since_ + (kSilenceOffline - kSilenceSuspect));
  }
  for (const Way* way : {&reads_, &writes_}) {
    if (way->under_way != 0 && !way->silent) consider(way->heard_at + kSilenceSuspect);
  }
  return next;
}

}  // namespace tier::storage
