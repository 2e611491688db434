#include "daemon/storage/drive_writes.h"

#include "daemon/base/check.h"

namespace tier::storage {

void DriveWrites::Note(uint64_t written, base::TimePoint now) {
  TIER_CHECK(written >= last_.written && (kept_.empty() || now >= last_.at), "{} bytes after {}", written,
             last_.written);
  last_ = {.written = written, .at = now};
  if (kept_.empty() || now - kept_.back().at >= kDriveWritesStep) kept_.push_back(last_);
  // The second oldest reaches over the whole window: the oldest is not needed any more.
  while (kept_.size() > 1 && now - kept_[1].at >= kDriveWritesWindow) kept_.pop_front();
}

double DriveWrites::PerDay(uint64_t capacity) const {
  TIER_CHECK(capacity != 0, "drive writes of a device without room ({} samples)", kept_.size());
  if (kept_.empty()) return 0;
  const base::Duration time = last_.at - kept_.front().at;
  if (time < kDriveWritesLeast) return 0;
  const double days = std::chrono::duration<double>(time) / std::chrono::duration<double>(std::chrono::hours(24));
  return static_cast<double>(last_.written - kept_.front().written) / static_cast<double>(capacity) / days;
}

void DriveWrites::CheckInvariants() const {
  TIER_CHECK(kept_.size() <= kSamplesMax, "{} samples", kept_.size());
  for (size_t i = 1; i < kept_.size(); ++i) {
    TIER_CHECK(kept_[i].at - kept_[i - 1].at >= kDriveWritesStep, "sample {} is too close", i);
    TIER_CHECK(kept_[i].written >= kept_[i - 1].written, "sample {} is less", i);
  }
}

}  // namespace tier::storage
