// DeviceTable: what the engine knows of each SSD device: its health, and what it has under way. Engine thread only.
//
// Changes through transfers/devices.h alone, which tells the ExtentStore what follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/device_health.h"
#include "daemon/storage/extent_store.h"

namespace tier::tiering {

// Which jobs have waited for reads: the last one, and the last other one.
class DemandOfJobs {
 public:
  void Note(JobIndex job, base::TimePoint now) {
    if (job != last_.job) other_ = last_;
    last_ = {job, now};
  }
  // Whether another job than this one has, in the last `time`.
  bool ByAnother(JobIndex job, base::TimePoint now, base::Duration time) const {
    const Demand& another = last_.job == job ? other_ : last_;
    return another.job != kNoJob && now - another.at < time;
  }

 private:
  struct Demand {
    JobIndex job = kNoJob;
    base::TimePoint at{};
  };
  Demand last_;
  Demand other_;  // The latest of a job that is not `last_`'s.
};

struct DeviceEntry {
  storage::DeviceHealth health;
  uint32_t writes = 0;  // Under way.
  uint32_t reads = 0;
  uint64_t reading_ahead_pages = 0;           // Of reads that no request waited for …
  uint64_t moving_pages = 0;                  // … and of these, of pieces of no job (MoveState).
  storage::Shut shut = storage::Shut::kOpen;  // As the ExtentStore was told last.
  DemandOfJobs demand;
  bool away = false;
  bool reads_fail = false;  // Pieces of it wait to be evicted.
};

class DeviceTable {
 public:
  explicit DeviceTable(uint16_t count) : devices_(count) {}

  uint16_t count() const { return static_cast<uint16_t>(devices_.size()); }
  const DeviceEntry& operator[](uint16_t device) const {
    TIER_CHECK(device < devices_.size(), "device {} of {}", device, devices_.size());
    return devices_[device];
  }
  DeviceEntry& Edit(uint16_t device) { return const_cast<DeviceEntry&>(std::as_const(*this)[device]); }
  bool IsReadable(uint16_t device) const { return (*this)[device].health.TakesReads(); }
  // Why it is not: "device 1 is offline (Input/output error)".
  std::string UnreadableReason(uint16_t device) const {
    const storage::DeviceHealth& health = (*this)[device].health;
    return fmt::format("device {} is {} ({})", device, DeviceStateName(health.state()), health.ErrorText());
  }
  // Writes that may stay under way for long.
  uint32_t stuck_writes() const {
    uint32_t stuck = 0;
    for (const DeviceEntry& device : devices_) stuck += device.away || device.health.silent() ? device.writes : 0;
    return stuck;
  }
  uint64_t stuck_ahead_pages() const {  // Of jobs' reads ahead.
    uint64_t stuck = 0;
    for (const DeviceEntry& device : devices_) {
      stuck += device.away || device.health.silent() ? device.reading_ahead_pages - device.moving_pages : 0;
    }
    return stuck;
  }
  // Probes under way.
  void StartProbe() { ++probes_; }
  void EndProbe() {
    TIER_CHECK(probes_ != 0, "a probe ended, {} devices", devices_.size());
    --probes_;
  }
  bool any_probe() const { return probes_ != 0; }
  // Something takes extents again that did not: who waits for that may look.
  void NoteOpened() { opened_ = true; }
  bool TakeOpened() { return std::exchange(opened_, false); }
  std::optional<base::TimePoint> NextDeadline(base::TimePoint now) const {
    std::optional<base::TimePoint> next;
    for (const DeviceEntry& device : devices_) {
      const auto at = device.health.NextDeadline(now);
      if (at && (!next || *at < *next)) next = at;
    }
    return next;
  }

 private:
  std::vector<DeviceEntry> devices_;
  uint32_t probes_ = 0;
  bool opened_ = false;
};

}  // namespace tier::tiering
